/* Stands in for libFuzzer: gives every file of the folders named on the command line to the target. */
#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = NULL;
    size_t size = 0, room = 0, got;

    if (file == NULL)
        return perror(path), -1;
    do {
        uint8_t *grown = realloc(data, room += 1 << 16);
        if (grown == NULL)
            return perror("replay"), -1;
        data = grown;
        got = fread(data + size, 1, room - size, file);
        size += got;
    } while (got != 0);
    fclose(file);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 0;
}

static int replay_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    char path[4096];
    int files = 0;

    if (dir == NULL)
        return perror(folder), -1;
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path ||
            replay_file(path) != 0)
            files = -1;
        if (files < 0)
            break;
        files++;
    }
    closedir(dir);
    return files;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const int files = replay_folder(argv[i]);
        if (files <= 0) {
            fprintf(stderr, "%s: no inputs\n", argv[i]);
            return 1;
        }
        printf("%s: %d inputs\n", argv[i], files);
    }
    return argc > 1 ? 0 : 2;
}
