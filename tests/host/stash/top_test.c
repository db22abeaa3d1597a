/* What a pool leaves for `pagestash top`: a file of its own, private, whole, and gone with the pool. */
#include "tests/harness.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/stash/top_file.h"
#include "tests/host/base/child.h"
#include "tests/host/stash/scene.h"

static const char *folder(void)
{
    return getenv("PAGESTASH_TOP");
}

/* How many files are there; path_out has one of them. */
static int num_files(char path_out[512])
{
    int num = 0;
    DIR *list = opendir(folder());
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;)
        if (entry->d_name[0] != '.') {
            snprintf(path_out, 512, "%s/%s", folder(), entry->d_name);
            num++;
        }
    if (list != NULL)
        closedir(list);
    return num;
}

static psti_top_file read_file(const char *path)
{
    psti_top_file file = {.bytes = 0};
    FILE *from = fopen(path, "rb");
    if (from != NULL) {
        if (fread(&file, sizeof(file), 1, from) != 1)
            file.bytes = 0;
        fclose(from);
    }
    return file;
}

static void expect(bool good, const char *what)
{
    if (!good)
        printf("not so: %s\n", what);
}
#define EXPECT(condition) expect(condition, #condition)

PST_CHILD(top_file)
{
    small_scene self;
    char path[512];
    struct stat found;
    pst_pool_status status;
    small_open(&self);
    EXPECT(num_files(path) == 1);
    EXPECT(stat(path, &found) == 0 && (found.st_mode & 07777) == 0600);
    psti_top_file file = read_file(path);
    EXPECT(memcmp(file.magic, PSTI_TOP_MAGIC, sizeof(file.magic)) == 0);
    EXPECT(file.bytes == sizeof(file) && file.sequence == 0 && file.process == getpid());
    EXPECT(file.process_start > 0 && file.process_start == psti_top_start_of(getpid()));
    EXPECT(file.page_bytes == PST_PAGE_BYTES_MIN);
    const psti_top_place here = psti_top_here();
    EXPECT(psti_top_is_place(&file.place, &here));
    EXPECT(file.poll.num_pages[0] == 3 && file.poll.num_pages[1] == 0 &&
           strcmp(file.device, "") != 0);
    EXPECT(pst_pool_poll(self.pool, &status) == PST_E_AGAIN && read_file(path).sequence == 0);
    for (uint64_t steps = 1; steps <= 3; steps++) {
        EXPECT(pst_pool_step(self.pool, NULL) == PST_OK);
        EXPECT(pst_pool_poll(self.pool, &status) == PST_OK);
        file = read_file(path);
        EXPECT(file.sequence == 2 * steps && file.poll.status.steps == steps &&
               file.poll.boot_ns > 0);
        EXPECT(memcmp(&file.poll.status, &status, sizeof(status)) == 0);
    }
    small_close(&self);
    EXPECT(num_files(path) == 0);
    puts("done");
}

static void check_child(const char *name)
{
    char path[] = "/tmp/pagestash-top-XXXXXX", variable[64];
    child_result child;
    CHECK(mkdtemp(path) != NULL);
    snprintf(variable, sizeof(variable), "PAGESTASH_TOP=%s", path);
    const char *const variables[] = {variable, NULL};
    const bool ran = child_run(name, variables, &child) && child.exited;
    CHECK_EQ(rmdir(path), 0);
    CHECK(ran);
    CHECK_STR(child.out, "done\n");
    CHECK_STR(child.err, "");
}

PST_TEST(Top, APollsStatusIsInAPrivateFile)
{
    check_child("top_file");
}

/* A child of a fork neither writes the parent's file nor removes it. */
PST_CHILD(top_fork)
{
    small_scene self;
    char path[512];
    pst_pool_status status;
    int ended = 0;
    small_open(&self);
    EXPECT(pst_pool_step(self.pool, NULL) == PST_OK);
    EXPECT(pst_pool_poll(self.pool, &status) == PST_OK);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        const bool good = pst_pool_step(self.pool, NULL) == PST_OK &&
                          pst_pool_poll(self.pool, &status) == PST_OK && status.steps == 2;
        small_close(&self);
        _exit(good ? 7 : 1);
    }
    EXPECT(waitpid(child, &ended, 0) == child && WIFEXITED(ended) && WEXITSTATUS(ended) == 7);
    EXPECT(num_files(path) == 1);
    const psti_top_file file = read_file(path);
    EXPECT(file.sequence == 2 && file.poll.status.steps == 1 && file.process == getpid());
    small_close(&self);
    puts("done");
}

PST_TEST(Top, AForkLeavesTheFileAlone)
{
    check_child("top_fork");
}

/* Two threads poll; whoever reads by the sequence sees states that belong together. */
static void *poll_often(void *argument)
{
    small_scene *self = argument;
    pst_pool_status status;
    for (int i = 0; i < 2000; i++)
        (void)pst_pool_poll(self->pool, &status);
    return NULL;
}

PST_CHILD(top_threads)
{
    small_scene self;
    pthread_t threads[2];
    char path[512];
    pst_pool_status status;
    small_open(&self);
    EXPECT(pst_pool_step(self.pool, NULL) == PST_OK);
    for (int i = 0; i < 2; i++)
        EXPECT(pthread_create(&threads[i], NULL, poll_often, &self) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    EXPECT(pst_pool_poll(self.pool, &status) == PST_OK && num_files(path) == 1);
    const psti_top_file file = read_file(path);
    EXPECT(file.sequence % 2 == 0 && file.sequence > 2000);
    small_close(&self);
    puts("done");
}

PST_TEST(Top, ThreadsMayPollOnePool)
{
    check_child("top_threads");
}

PST_CHILD(top_full)
{
    small_scene self;
    char path[512];
    EXPECT(num_files(path) == 0 && pst_env_check() == PST_OK);
    EXPECT(rmdir(folder()) == 0);
    small_open(&self);
    EXPECT(self.pool->top == NULL);
    small_close(&self);
    EXPECT(mkdir(folder(), 0700) == 0);
    puts("done");
}

PST_TEST(Top, WithoutAFileThePoolWorks)
{
    check_child("top_full");
}

enum { NUM_OTHERS = 11 };

/* Makes of what a dead process of our number has left something else that may lie under the name. */
static void change(int which, const char *path, psti_top_file *file)
{
    char other[600];
    snprintf(other, sizeof(other), "%s/.other", folder());
    switch (which) {
    case 0:
        file->process_start = psti_top_start_of(getpid()); /* another copy of the library */
        break;
    case 1:
        file->place.pid_namespace++;
        break;
    case 2:
        file->place.boot[0] ^= 1;
        break;
    case 3:
        file->process++;
        break;
    case 4:
        file->process_start = PSTI_TOP_PRUNED;
        break;
    case 5:
        file->magic[6]++;
        break;
    case 6:
        file->bytes++;
        break;
    }
    FILE *to = fopen(which == 9 ? other : path, "wb");
    EXPECT(to != NULL && fwrite(file, sizeof(*file), 1, to) == 1);
    if (which == 7)
        fputc('x', to);
    fclose(to);
    EXPECT(chmod(which == 9 ? other : path, which == 8 ? 0640 : 0600) == 0);
    if (which == 9)
        EXPECT(symlink(other, path) == 0);
    if (which == 10)
        EXPECT(link(path, other) == 0);
}

/* Each name that is taken is passed over, and what lies there stays as it is. */
static void pass_over(psti_top_file left, uint64_t number)
{
    for (int which = 0; which < NUM_OTHERS; which++, number += 2) {
        small_scene self;
        char path[512], taken[512], other[600];
        psti_top_file file = left;
        snprintf(taken, sizeof(taken), "%s/pagestash-%ld-%lu.top", folder(), (long)getpid(),
                 (unsigned long)number);
        snprintf(other, sizeof(other), "%s/.other", folder());
        change(which, taken, &file);
        small_open(&self);
        snprintf(path, sizeof(path), "%s/pagestash-%ld-%lu.top", folder(), (long)getpid(),
                 (unsigned long)number + 1);
        EXPECT(read_file(path).pool == number + 1);
        const psti_top_file after = read_file(taken);
        EXPECT(memcmp(&after, &file, sizeof(file)) == 0);
        small_close(&self);
        EXPECT(unlink(taken) == 0 && num_files(path) == 0);
        unlink(other);
    }
}

PST_CHILD(top_left)
{
    small_scene self;
    char path[512], taken[512];
    pst_pool_status status;
    small_open(&self);
    EXPECT(pst_pool_step(self.pool, NULL) == PST_OK);
    EXPECT(pst_pool_poll(self.pool, &status) == PST_OK && num_files(path) == 1);
    psti_top_file left = read_file(path);
    small_close(&self);
    left.process_start--;
    left.page_bytes = 1;
    snprintf(taken, sizeof(taken), "%s/pagestash-%ld-1.top", folder(), (long)getpid());
    change(-1, taken, &left);
    small_open(&self);
    EXPECT(num_files(path) == 1 && strcmp(path, taken) == 0);
    const psti_top_file file = read_file(path);
    EXPECT(file.sequence == 0 && file.poll.status.steps == 0 && file.pool == 1);
    EXPECT(file.process_start == left.process_start + 1 && file.page_bytes == PST_PAGE_BYTES_MIN);
    small_close(&self);
    EXPECT(num_files(path) == 0);
    pass_over(left, 2);
    puts("done");
}

PST_TEST(Top, WhatADeadProcessOfTheNumberLeftIsTakenOver)
{
    check_child("top_left");
}

PST_TEST(Top, OneTakesWhatADeadProcessLeft)
{
    psti_top_file file = {.process_start = 5};
    CHECK(psti_top_take(&file, 5, 6));
    CHECK(!psti_top_take(&file, 5, 7));
    CHECK_EQ(file.process_start, 6);
}

/* Of two places that are unknown, nobody knows that they are one. */
PST_TEST(Top, APlaceIsBootAndNamespace)
{
    const psti_top_place here = psti_top_here(), unknown = {.pid_namespace = 0};
    psti_top_place other = here;
    CHECK_EQ(strlen(here.boot), 36);
    CHECK(psti_top_is_place(&here, &other));
    other.pid_namespace++;
    CHECK(!psti_top_is_place(&here, &other));
    other = here;
    other.boot[35] ^= 1;
    CHECK(!psti_top_is_place(&here, &other));
    CHECK(!psti_top_is_place(&unknown, &unknown));
}

PST_CHILD(top_check)
{
    puts(pst_status_name(pst_env_check()));
    puts(pst_last_message());
}

PST_TEST(Top, AFolderThatIsNoneIsRefused)
{
    static const char *const absent[] = {"PAGESTASH_TOP=/nowhere/top", NULL};
    static const char *const file[] = {"PAGESTASH_TOP=/proc/self/stat", NULL};
    static const char *const nothing[] = {"PAGESTASH_TOP=", NULL};
    child_result child;
    CHECK(child_run("top_check", absent, &child) && child.exited);
    CHECK(strstr(child.out, "PST_E_INVALID\nPAGESTASH_TOP='/nowhere/top': No such file or "
                            "directory [env.c:") == child.out);
    CHECK(child_run("top_check", file, &child) && child.exited);
    CHECK(strstr(child.out, "PST_E_INVALID\nPAGESTASH_TOP='/proc/self/stat': Not a directory "
                            "[env.c:") == child.out);
    CHECK(child_run("top_check", nothing, &child) && child.exited);
    CHECK_STR(child.out, "PST_OK\n\n");
}
