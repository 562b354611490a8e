/* SPDX-License-Identifier: BSD-2-Clause
 * Lists of words. */
#include "ab.h"

#include <stdio.h>
#include <stdlib.h>

bool words_add(struct words *w, const char *text)
{
    if (w->count == AB_MAX_WORDS)
        return false;
    w->v[w->count] = strdup(text);
    if (w->v[w->count] == NULL)
        return false;
    w->v[++w->count] = NULL;
    return true;
}

bool words_split(struct words *w, const char *text)
{
    char word[4096];
    while (true) {
        size_t len = 0;
        char quote = 0;
        text += strspn(text, " \t\n");
        if (*text == '\0')
            return true;
        for (; *text != '\0' && (quote || strchr(" \t\n", *text) == NULL); text++) {
            char c = *text;
            if (quote ? c == quote : c == '\'' || c == '"') {
                quote = quote ? 0 : c;
                continue;
            }
            if (c == '\\' && quote != '\'' && text[1] != '\0')
                c = *++text;
            if (len + 1 >= sizeof(word))
                return false;
            word[len++] = c;
        }
        word[len] = '\0';
        if (quote || !words_add(w, word))
            return false;
    }
}

bool words_append(struct words *w, const struct words *more)
{
    for (unsigned i = 0; i < more->count; i++)
        if (!words_add(w, more->v[i]))
            return false;
    return true;
}

void words_free(struct words *w)
{
    for (unsigned i = 0; i < w->count; i++)
        free(w->v[i]);
    *w = (struct words){0};
}

void label_add(char *label, size_t size, const char *prefix, const char *text)
{
    size_t len = strlen(label);
    snprintf(label + len, size - len, "%s%s%s", len > 0 ? " " : "", prefix, text);
}
