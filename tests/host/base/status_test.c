/* Names, texts and the last message of a thread. */
#include "tests/harness.h"

#include <pthread.h>
#include <stdio.h>

#include <pagestash/pagestash.h>

#include "host/base/base.h"

PST_TEST(Status, EveryCodeHasItsNameAndText)
{
#define CHECK_ONE(name, value, text)          \
    CHECK_EQ(name, value);                    \
    CHECK_STR(pst_status_name(name), #name);  \
    CHECK_STR(pst_status_text(name), text);   \
    CHECK(strlen(pst_status_text(name)) > 0); \
    CHECK(strchr(pst_status_text(name), '\n') == NULL);
    PST_STATUS_LIST(CHECK_ONE)
#undef CHECK_ONE
}

PST_TEST(Status, ValuesArePinned)
{
    CHECK_EQ(PST_OK, 0);
    CHECK_EQ(PST_E_INVALID, -1);
    CHECK_EQ(PST_E_BUSY, -2);
    CHECK_EQ(PST_E_NOMEM, -3);
    CHECK_EQ(PST_E_DEVICE_NOMEM, -4);
    CHECK_EQ(PST_E_UNSUPPORTED, -5);
    CHECK_EQ(PST_E_NO_DEVICE, -6);
    CHECK_EQ(PST_E_CUDA, -7);
    CHECK_EQ(PST_E_CAPTURE, -8);
    CHECK_EQ(PST_E_AGAIN, -9);
    CHECK_EQ(PST_E_ORDER, -10);
    CHECK_EQ(PST_E_PEER, -11);
    CHECK_EQ(PST_E_DAMAGED, -12);
}

PST_TEST(Status, OtherValuesAreUnknown)
{
    static const int values[] = {1, -13, 1000, -1000};
    for (int i = 0; i < 4; i++) {
        CHECK_STR(pst_status_name((pst_status)values[i]), "PST_E_UNKNOWN");
        CHECK_STR(pst_status_text((pst_status)values[i]), "no status of this library");
    }
}

PST_TEST(Status, EveryFaultHasItsText)
{
#define CHECK_ONE(name, value, text) \
    CHECK_EQ(name, value);           \
    CHECK_STR(pst_fault_text(name), text);
    PST_FAULT_LIST(CHECK_ONE)
#undef CHECK_ONE
    CHECK_STR(pst_fault_text((pst_fault)14), "no fault of this library");
    CHECK_STR(pst_fault_text((pst_fault)31), "no fault of this library");
}

PST_TEST(Status, VersionIsThatOfTheHeader)
{
    CHECK_EQ(pst_version(), PST_VERSION);
    CHECK_EQ(PST_VERSION, PST_VERSION_MAJOR * 10000 + PST_VERSION_MINOR * 100 + PST_VERSION_PATCH);
}

/* ---- the last message ---- */

PST_TEST(Status, LastMessageSaysValueFileAndLine)
{
    char expected[64];
    CHECK_STATUS(psti_fail(PST_E_BUSY, "some/folder/file.c", 42, "%d of %s", 7, "nine"),
                 PST_E_BUSY);
    CHECK_STR(pst_last_message(), "7 of nine [file.c:42]");
    CHECK_STATUS(psti_fail(PST_E_NOMEM, "file.c", 1, "no folder"), PST_E_NOMEM);
    CHECK_STR(pst_last_message(), "no folder [file.c:1]");
    snprintf(expected, sizeof(expected), "here [status_test.c:%d]", __LINE__ + 1);
    CHECK_STATUS(PSTI_FAIL(PST_E_INVALID, "here"), PST_E_INVALID);
    CHECK_STR(pst_last_message(), expected);
}

PST_TEST(Status, ALongMessageIsCutButKeepsItsPlace)
{
    char text[5000], file[3000];
    memset(text, 'x', sizeof(text) - 1);
    memset(file, 'f', sizeof(file) - 1);
    text[sizeof(text) - 1] = '\0';
    file[sizeof(file) - 1] = '\0';
    CHECK_STATUS(psti_fail(PST_E_INVALID, file, 123456, "%s", text), PST_E_INVALID);
    const char *message = pst_last_message();
    CHECK(strlen(message) > 500 && strlen(message) < 1024);
    CHECK_STR(message + strlen(message) - 8, ":123456]");
}

PST_TEST(Status, SuccessKeepsTheLastMessage)
{
    pst_device *device = NULL;
    CHECK_STATUS(psti_fail(PST_E_BUSY, "f.c", 3, "stays"), PST_E_BUSY);
    CHECK_OK(pst_device_open("host", 0, &device));
    CHECK_OK(pst_device_synchronize(device));
    CHECK_OK(pst_device_close(device));
    CHECK_STR(pst_last_message(), "stays [f.c:3]");
}

typedef struct own_message {
    char before[64], after[64];
} own_message;

static void *fail_in_a_thread(void *opaque)
{
    own_message *self = opaque;
    snprintf(self->before, sizeof(self->before), "%s", pst_last_message());
    psti_fail(PST_E_BUSY, "thread.c", 5, "of the thread");
    snprintf(self->after, sizeof(self->after), "%s", pst_last_message());
    return NULL;
}

PST_TEST(Status, EachThreadHasItsOwnMessage)
{
    pthread_t thread;
    own_message message = {.before = "unread"};
    CHECK_STATUS(psti_fail(PST_E_BUSY, "main.c", 4, "of the test"), PST_E_BUSY);
    CHECK_EQ(pthread_create(&thread, NULL, fail_in_a_thread, &message), 0);
    pthread_join(thread, NULL);
    CHECK_STR(message.before, ""); /* before the thread's first failure */
    CHECK_STR(message.after, "of the thread [thread.c:5]");
    CHECK_STR(pst_last_message(), "of the test [main.c:4]");
}

PST_TEST(Status, AMessageIsOneLine)
{
    pst_device *device = NULL;
    CHECK_STATUS(pst_device_open("a\nb", 0, &device), PST_E_INVALID);
    CHECK(strchr(pst_last_message(), '\n') == NULL);
}
