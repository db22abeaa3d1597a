/* What llama_math.h says. */
#include "tests/host/linear/llama_math.h"

#include <math.h>
#include <string.h>

static float dot(const float *a, const float *b, uint64_t num)
{
    float sum = 0;
    for (uint64_t i = 0; i < num; i++)
        sum += a[i] * b[i];
    return sum;
}

static void add(float *to, float by, const float *from, uint64_t num)
{
    for (uint64_t i = 0; i < num; i++)
        to[i] += by * from[i];
}

/* ---- norms ---- */

void llama_norm(const float *x, const float *weight, uint64_t rows, uint64_t columns, float *rstd,
                float *y)
{
    for (uint64_t i = 0; i < rows; i++) {
        const float *row = x + i * columns;
        rstd[i] = 1 / sqrtf(dot(row, row, columns) / (float)columns + 1e-5f);
        for (uint64_t j = 0; j < columns; j++)
            y[i * columns + j] = row[j] * rstd[i] * weight[j];
    }
}

void llama_norm_back(const float *x, const float *weight, const float *rstd, const float *dy,
                     uint64_t rows, uint64_t columns, float *dx, float *dweight)
{
    for (uint64_t i = 0; i < rows; i++) {
        const float *row = x + i * columns, *d = dy + i * columns;
        float mean = 0;
        for (uint64_t j = 0; j < columns; j++)
            mean += row[j] * weight[j] * d[j];
        mean *= rstd[i] * rstd[i] / (float)columns;
        for (uint64_t j = 0; j < columns; j++) {
            dx[i * columns + j] += rstd[i] * (weight[j] * d[j] - row[j] * mean);
            dweight[j] += d[j] * row[j] * rstd[i];
        }
    }
}

/* ---- attention ---- */

void llama_rotate(float *qkv, uint64_t tokens, uint64_t heads, uint64_t head_size, float sign)
{
    const uint64_t width = heads * head_size;
    for (uint64_t t = 0; t < tokens; t++)
        for (uint64_t i = 0; i < 2 * width; i += 2) { /* of queries, then of keys */
            float *pair = qkv + t * 3 * width + i;
            const float share = (float)(i % head_size) / (float)head_size;
            const float angle = sign * (float)t * powf(10000, -share);
            const float a = pair[0], b = pair[1];
            pair[0] = a * cosf(angle) - b * sinf(angle);
            pair[1] = a * sinf(angle) + b * cosf(angle);
        }
}

/* Places of head h of token t: queries (0), keys (1), values (2). */
static uint64_t at(const llama_attention *of, uint64_t t, uint64_t h, uint64_t which)
{
    return ((3 * t + which) * of->heads + h) * of->head_size;
}

static float score(const llama_attention *of, uint64_t t, uint64_t s, uint64_t h)
{
    return dot(of->qkv + at(of, t, h, 0), of->qkv + at(of, s, h, 1), of->head_size) /
           sqrtf((float)of->head_size);
}

static void attend_one(const llama_attention *of, uint64_t t, uint64_t h)
{
    float *out = of->out + (t * of->heads + h) * of->head_size;
    float most = -INFINITY, sum = 0;
    for (uint64_t s = 0; s <= t; s++)
        most = fmaxf(most, score(of, t, s, h));
    for (uint64_t s = 0; s <= t; s++)
        sum += expf(score(of, t, s, h) - most);
    of->lse[t * of->heads + h] = most + logf(sum);
    memset(out, 0, of->head_size * sizeof(*out));
    for (uint64_t s = 0; s <= t; s++)
        add(out, expf(score(of, t, s, h) - of->lse[t * of->heads + h]), of->qkv + at(of, s, h, 2),
            of->head_size);
}

void llama_attend(const llama_attention *of)
{
    for (uint64_t t = 0; t < of->tokens; t++)
        for (uint64_t h = 0; h < of->heads; h++)
            attend_one(of, t, h);
}

static void attend_one_back(const llama_attention *of, uint64_t t, uint64_t h, const float *dout,
                            float *dqkv)
{
    const uint64_t size = of->head_size, row = (t * of->heads + h) * size;
    const float all = dot(dout + row, of->out + row, size);
    for (uint64_t s = 0; s <= t; s++) {
        const float share = expf(score(of, t, s, h) - of->lse[t * of->heads + h]);
        const float of_share = dot(dout + row, of->qkv + at(of, s, h, 2), size);
        const float of_score = share * (of_share - all) / sqrtf((float)size);
        add(dqkv + at(of, s, h, 2), share, dout + row, size);
        add(dqkv + at(of, t, h, 0), of_score, of->qkv + at(of, s, h, 1), size);
        add(dqkv + at(of, s, h, 1), of_score, of->qkv + at(of, t, h, 0), size);
    }
}

void llama_attend_back(const llama_attention *of, const float *dout, float *dqkv)
{
    memset(dqkv, 0, of->tokens * 3 * of->heads * of->head_size * sizeof(*dqkv));
    for (uint64_t t = 0; t < of->tokens; t++)
        for (uint64_t h = 0; h < of->heads; h++)
            attend_one_back(of, t, h, dout, dqkv);
}
