/* The table again and again on a terminal, which is left as it was found. */
#include "tools/common/tool.h"
#include "tools/top/top.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

static volatile sig_atomic_t is_over;

static void stop(int number)
{
    (void)number;
    is_over = 1;
}

/* Waits for the time or, where there are any, a key; false: to end. */
static bool wait_for_key(bool has_keys, int milliseconds)
{
    struct pollfd input = {.fd = has_keys ? STDIN_FILENO : -1, .events = POLLIN};
    char key = '\0';
    if (poll(&input, 1, milliseconds) <= 0)
        return is_over == 0;
    return read(STDIN_FILENO, &key, 1) == 1 && key != 'q' && is_over == 0;
}

static int show(const char *folder, bool has_keys)
{
    top_list list;
    TOOL_TRY(top_read(folder, &list));
    fputs("\033[H\033[J", stdout);
    top_print(folder, &list);
    puts(has_keys ? "\nq ends" : "\nCtrl-C ends");
    top_free(&list);
    return tool_flush(TOOL_OK);
}

int top_watch(const char *folder, double seconds)
{
    struct termios before, keys;
    const struct sigaction handler = {.sa_handler = stop};
    const bool has_keys = tcgetattr(STDIN_FILENO, &before) == 0;
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        sigaction(ends[i], &handler, NULL);
    if (has_keys) {
        keys = before;
        keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &keys);
    }
    fputs("\033[?25l", stdout); /* no cursor */
    int code = TOOL_OK;
    do
        code = show(folder, has_keys);
    while (code == TOOL_OK && wait_for_key(has_keys, (int)(seconds * 1e3)));
    fputs("\033[?25h", stdout);
    if (has_keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    return tool_flush(code);
}
