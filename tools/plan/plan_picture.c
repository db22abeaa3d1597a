#include "tools/plan/plan_picture.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "tools/common/tool.h"

/* JavaScript's numbers are exact up to here. */
#define MAX_EXACT (UINT64_C(1) << 53)

/* The code point at *text, moved behind it; U+FFFD for a byte that begins none. */
static uint32_t next_code_point(const unsigned char **text)
{
    const unsigned char *at = *text;
    const uint32_t lead = *at++;
    int more = 0;
    uint32_t point = lead;
    if (lead >= 0xc2 && lead <= 0xdf) {
        more = 1;
        point = lead & 0x1fu;
    } else if (lead >= 0xe0 && lead <= 0xef) {
        more = 2;
        point = lead & 0x0fu;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
        more = 3;
        point = lead & 0x07u;
    } else if (lead >= 0x80) {
        point = 0xfffd;
    }
    *text = at;
    for (int i = 0; i < more; i++) {
        if ((at[i] & 0xc0u) != 0x80u) /* the final zero, too */
            return 0xfffd;
        point = point << 6 | (at[i] & 0x3fu);
    }
    if ((more == 2 && (point < 0x800 || (point >= 0xd800 && point <= 0xdfff))) ||
        (more == 3 && (point < 0x10000 || point > 0x10ffff)))
        return 0xfffd;
    *text = at + more;
    return point;
}

void picture_put_text(FILE *file, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    fputc('"', file);
    while (*at != 0) {
        const uint32_t point = next_code_point(&at);
        if (point >= 0x10000)
            fprintf(file, "\\u%04x\\u%04x", 0xd800 + ((point - 0x10000) >> 10),
                    0xdc00 + ((point - 0x10000) & 0x3ff));
        else if (point < 0x20 || point > 0x7e || strchr("\"\\<>&'", (int)point) != NULL)
            fprintf(file, "\\u%04x", point);
        else
            fputc((int)point, file);
    }
    fputc('"', file);
}

void picture_put_number(FILE *file, uint64_t value)
{
    fprintf(file, value <= MAX_EXACT ? "%" PRIu64 : "\"%" PRIu64 "\"", value);
}

const char *picture_put_page(FILE *file, const char *page, const char *marker)
{
    const char *at = strstr(page, marker);
    fwrite(page, 1, (size_t)(at - page), file);
    return at + strlen(marker);
}

const char *picture_phase_name(uint8_t phase)
{
    static const char *const names[PST_NUM_PHASES] = {"", "forward", "backward", "weight", "other"};
    return phase < PST_NUM_PHASES ? names[phase] : "";
}

int picture_finish(FILE *file)
{
    if (fflush(file) == 0 && !ferror(file))
        return TOOL_OK;
    return tool_fail(TOOL_NO, "the picture cannot be written: %s", strerror(errno));
}
