/* SPDX-License-Identifier: BSD-2-Clause
 * The knobs that a result depends on: what is not at its default. */
#include "bench.h"
#include "bench_sysctl.h"

#include "base/sysctl.h"
#include "weir/stack.h"

#include <inttypes.h>
#include <stdio.h>

static json_t *value_json(const char *text)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno == 0 && *end == '\0' && end != text)
        return json_integer(v);
    return json_string(text);
}

static void default_text(const struct knob_info *k, char *out, size_t size)
{
    const char *word = k->words;
    if (k->type != KNOB_TYPE_ENUM) {
        snprintf(out, size, "%" PRId64, k->dflt);
        return;
    }
    for (int64_t i = 0; i < k->dflt && word != NULL; i++)
        word = strchr(word, '|') != NULL ? strchr(word, '|') + 1 : NULL;
    snprintf(out, size, "%.*s", word != NULL ? (int)strcspn(word, "|") : 0,
             word != NULL ? word : "");
}

json_t *bench_sysctl_json(const struct net *n, const struct settings *asked)
{
    char value[1024], dflt[128];
    if (n->stack == NULL)
        return NULL;
    json_t *o = json_object();
    for (int i = 0; i < KNOB_COUNT; i++) {
        const struct knob_info *k = &knob_table[i];
        if (k->type == KNOB_TYPE_PROC ||
            weir_sysctl_get(n->stack, k->name, value, sizeof(value)) != 0)
            continue;
        default_text(k, dflt, sizeof(dflt));
        if (strcmp(value, dflt) != 0)
            json_object_set_new(o, k->name, value_json(value));
    }
    for (unsigned i = 0; asked != NULL && i < asked->count; i++)
        if (weir_sysctl_get(n->stack, asked->v[i].name, value, sizeof(value)) == 0)
            json_object_set_new(o, asked->v[i].name, value_json(value));
    return o;
}

json_t *bench_siftr_json(const struct net *n)
{
    char text[1024], *rest = text, *word;
    if (n->stack == NULL ||
        weir_sysctl_get(n->stack, "net.inet.siftr.stats", text, sizeof(text)) != 0 ||
        text[0] == '\0')
        return NULL;
    json_t *o = json_object();
    while ((word = strsep(&rest, " ")) != NULL) {
        char *value = strchr(word, '=');
        if (value == NULL)
            continue;
        *value++ = '\0';
        json_object_set_new(o, word, value_json(value));
    }
    return o;
}
