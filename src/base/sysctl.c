/* SPDX-License-Identifier: BSD-2-Clause
 * The sysctl registry: tables made from knobs.def, text to value and back. */
#include "sysctl.h"

#include "stack.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define KNOB_INT(scope, id, name, dflt, min, max, doc) .id = (dflt),
#define KNOB_BOOL(scope, id, name, dflt, doc) .id = (dflt),
#define KNOB_ENUM(scope, id, name, dflt, words, doc) .id = (dflt),
#define KNOB_PROC(scope, id, name, doc)
struct knobs process_knobs = {
#include "knobs.def"
};
#undef KNOB_INT
#undef KNOB_BOOL
#undef KNOB_ENUM
#undef KNOB_PROC

#define KNOB_INT(sc, id, nm, df, mn, mx, txt)                                                      \
    [KNOB_##id] = {.name = (nm),                                                                   \
                   .doc = (txt),                                                                   \
                   .scope = KNOB_SCOPE_##sc,                                                       \
                   .type = KNOB_TYPE_INT,                                                          \
                   .dflt = (df),                                                                   \
                   .min = (mn),                                                                    \
                   .max = (mx)},
#define KNOB_BOOL(sc, id, nm, df, txt)                                                             \
    [KNOB_##id] = {.name = (nm),                                                                   \
                   .doc = (txt),                                                                   \
                   .scope = KNOB_SCOPE_##sc,                                                       \
                   .type = KNOB_TYPE_BOOL,                                                         \
                   .dflt = (df),                                                                   \
                   .min = 0,                                                                       \
                   .max = 1},
#define KNOB_ENUM(sc, id, nm, df, wd, txt)                                                         \
    [KNOB_##id] = {.name = (nm),                                                                   \
                   .doc = (txt),                                                                   \
                   .scope = KNOB_SCOPE_##sc,                                                       \
                   .type = KNOB_TYPE_ENUM,                                                         \
                   .dflt = (df),                                                                   \
                   .words = (wd)},
#define KNOB_PROC(sc, id, nm, txt)                                                                 \
    [KNOB_##id] = {.name = (nm), .doc = (txt), .scope = KNOB_SCOPE_##sc, .type = KNOB_TYPE_PROC},
const struct knob_info knob_table[KNOB_COUNT] = {
#include "knobs.def"
};
#undef KNOB_INT
#undef KNOB_BOOL
#undef KNOB_ENUM
#undef KNOB_PROC

/* Where in struct knobs the value of each knob lives; KNOB_PROC has none. */
#define NO_FIELD SIZE_MAX
#define KNOB_INT(scope, id, name, dflt, min, max, doc) [KNOB_##id] = offsetof(struct knobs, id),
#define KNOB_BOOL(scope, id, name, dflt, doc) [KNOB_##id] = offsetof(struct knobs, id),
#define KNOB_ENUM(scope, id, name, dflt, words, doc) [KNOB_##id] = offsetof(struct knobs, id),
#define KNOB_PROC(scope, id, name, doc) [KNOB_##id] = NO_FIELD,
static const size_t knob_offset[KNOB_COUNT] = {
#include "knobs.def"
};
#undef KNOB_INT
#undef KNOB_BOOL
#undef KNOB_ENUM
#undef KNOB_PROC

static _Atomic int64_t *knob_field(struct knobs *k, int id)
{
    CHECK(knob_offset[id] != NO_FIELD);
    return (_Atomic int64_t *)(void *)((char *)k + knob_offset[id]);
}

void sysctl_init(struct knobs *k)
{
    for (int id = 0; id < KNOB_COUNT; id++) {
        if (knob_offset[id] != NO_FIELD)
            STORE_RELAXED(knob_field(k, id), knob_table[id].dflt);
    }
}

void sysctl_set_handler(struct weir_stack *s, enum knob_id id, sysctl_handler *fn)
{
    CHECK(knob_table[id].type == KNOB_TYPE_PROC);
    s->sysctl.handler[id] = fn;
}

void sysctl_set_changed(struct weir_stack *s, enum knob_id id, void (*fn)(struct weir_stack *))
{
    s->sysctl.changed[id] = fn;
}

int sysctl_find(const char *name)
{
    for (int id = 0; id < KNOB_COUNT; id++) {
        if (strcmp(knob_table[id].name, name) == 0)
            return id;
    }
    return -1;
}

static struct knobs *knobs_of(struct weir_stack *s, int id)
{
    return knob_table[id].scope == KNOB_SCOPE_PROCESS ? &process_knobs : &s->knobs;
}

/* The word at `index` of "a|b|c"; NULL beyond the last. Returns its length in *len. */
static const char *word_at(const char *words, int64_t index, size_t *len)
{
    while (index-- > 0) {
        words = strchr(words, '|');
        if (words == NULL)
            return NULL;
        words++;
    }
    *len = strcspn(words, "|");
    return words;
}

static int put_text(char *out, size_t out_size, const char *text, size_t len)
{
    if (len >= out_size)
        return -ENOSPC;
    memcpy(out, text, len);
    out[len] = '\0';
    return 0;
}

int sysctl_get(struct weir_stack *s, const char *name, char *out, size_t out_size)
{
    int id = sysctl_find(name);
    if (id < 0)
        return -ENOENT;
    if (out_size == 0)
        return -ENOSPC;
    const struct knob_info *info = &knob_table[id];
    out[0] = '\0';
    if (info->type == KNOB_TYPE_PROC) {
        sysctl_handler *fn = s != NULL ? s->sysctl.handler[id] : NULL;
        return fn != NULL ? fn(s, NULL, out, out_size) : -ENOENT;
    }
    int64_t value = LOAD_RELAXED(knob_field(knobs_of(s, id), id));
    if (info->type == KNOB_TYPE_ENUM) {
        size_t len = 0;
        const char *word = word_at(info->words, value, &len);
        CHECK(word != NULL);
        return put_text(out, out_size, word, len);
    }
    char text[24];
    int len = snprintf(text, sizeof(text), "%" PRId64, value);
    return put_text(out, out_size, text, (size_t)len);
}

/* The whole text is one decimal number: no blanks, no plus sign, no other base. */
static int parse_int(const char *text, int64_t *value)
{
    const char *digits = text[0] == '-' ? text + 1 : text;
    if (digits[0] == '\0' || digits[strspn(digits, "0123456789")] != '\0')
        return -EINVAL;
    errno = 0;
    long long v = strtoll(text, NULL, 10);
    if (errno == ERANGE)
        return -ERANGE;
    *value = v;
    return 0;
}

static int parse_enum(const char *words, const char *text, int64_t *value)
{
    size_t text_len = strlen(text), len = 0;
    const char *word;
    for (int64_t i = 0; (word = word_at(words, i, &len)) != NULL; i++) {
        if (len == text_len && memcmp(word, text, len) == 0) {
            *value = i;
            return 0;
        }
    }
    /* A number that none of the numeric words names is out of range rather than of the wrong type.
     */
    bool numeric = words[strspn(words, "0123456789|")] == '\0';
    return numeric && parse_int(text, value) != -EINVAL ? -ERANGE : -EINVAL;
}

static int parse_value(const struct knob_info *info, const char *text, int64_t *value)
{
    if (info->type == KNOB_TYPE_ENUM)
        return parse_enum(info->words, text, value);
    int error = parse_int(text, value);
    if (error != 0)
        return error;
    return *value < info->min || *value > info->max ? -ERANGE : 0;
}

int sysctl_check(const char *name, const char *value)
{
    int id = sysctl_find(name);
    int64_t v;

    if (id < 0)
        return -ENOENT;
    return knob_table[id].type == KNOB_TYPE_PROC ? 0 : parse_value(&knob_table[id], value, &v);
}

int sysctl_set(struct weir_stack *s, const char *name, const char *value)
{
    int id = sysctl_find(name);
    if (id < 0)
        return -ENOENT;
    const struct knob_info *info = &knob_table[id];
    if (info->type == KNOB_TYPE_PROC) {
        sysctl_handler *fn = s != NULL ? s->sysctl.handler[id] : NULL;
        if (fn == NULL)
            return -ENOENT;
        char none[1];
        int error = fn(s, value, none, 0);
        if (error != 0)
            return error;
    } else {
        int64_t v = 0;
        int error = parse_value(info, value, &v);
        if (error != 0)
            return error;
        STORE_RELAXED(knob_field(knobs_of(s, id), id), v);
    }
    if (s != NULL && s->sysctl.changed[id] != NULL)
        s->sysctl.changed[id](s);
    return 0;
}
