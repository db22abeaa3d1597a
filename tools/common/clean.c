/* Text of others for a terminal: what would move its cursor or colour it is '?'. */
#include "tools/common/tool.h"

#include <stdio.h>

static char clean(char letter)
{
    return (unsigned char)letter < ' ' || letter == 127 ? '?' : letter;
}

void tool_clean(char *text)
{
    for (; *text != '\0'; text++)
        *text = clean(*text);
}

void tool_put(const char *text)
{
    for (; *text != '\0'; text++)
        putchar(clean(*text));
}
