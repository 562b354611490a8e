/* SPDX-License-Identifier: BSD-2-Clause
 * Names of code addresses: the ELF symbol tables of the files that this process is made of.
 *
 * dladdr says in which file an address is and where that begins; it knows exported functions only,
 * so the file's own .symtab is read. Files are mapped once for each struct symbols. */
#include "symbol.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODULES_MAX 16

struct module {
    const void *base; /* as dladdr tells it */
    const uint8_t *map;
    size_t size;
    const ElfW(Sym) * sym; /* NULL: none could be read */
    size_t count;
    const char *names;
    size_t names_size;
};

struct symbols {
    struct module module[MODULES_MAX];
    unsigned count;
};

struct symbols *symbols_open(void)
{
    return calloc(1, sizeof(struct symbols));
}

void symbols_close(struct symbols *s)
{
    for (unsigned i = 0; s && i < s->count; i++)
        if (s->module[i].map)
            munmap((void *)(uintptr_t)s->module[i].map, s->module[i].size);
    free(s);
}

static bool inside(const struct module *m, uint64_t at, uint64_t len)
{
    return at <= m->size && len <= m->size - at;
}

/* The symbols of a section of this type. The file may be anything. */
static bool take_table(struct module *m, uint32_t type)
{
    const ElfW(Ehdr) *eh = (const void *)m->map;
    const ElfW(Shdr) *sh = (const void *)(m->map + eh->e_shoff);

    for (unsigned i = 0; i < eh->e_shnum; i++) {
        if (sh[i].sh_type != type || sh[i].sh_link >= eh->e_shnum)
            continue;
        const ElfW(Shdr) *str = &sh[sh[i].sh_link];
        if (sh[i].sh_offset % 8 != 0 || !inside(m, sh[i].sh_offset, sh[i].sh_size) ||
            !inside(m, str->sh_offset, str->sh_size) || str->sh_size == 0 ||
            m->map[str->sh_offset + str->sh_size - 1] != '\0')
            continue;
        m->sym = (const void *)(m->map + sh[i].sh_offset);
        m->count = sh[i].sh_size / sizeof(*m->sym);
        m->names = (const char *)m->map + str->sh_offset;
        m->names_size = str->sh_size;
        return true;
    }
    return false;
}

static void module_read(struct module *m, const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= (off_t)sizeof(ElfW(Ehdr))) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        m->map = p != MAP_FAILED ? p : NULL;
        m->size = (size_t)st.st_size;
    }
    close(fd);
    const ElfW(Ehdr) *eh = (const void *)m->map;
    if (eh && memcmp(eh->e_ident, ELFMAG, SELFMAG) == 0 &&
        eh->e_ident[EI_CLASS] == (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32) &&
        eh->e_shoff % 8 == 0 && eh->e_shentsize == sizeof(ElfW(Shdr)) &&
        inside(m, eh->e_shoff, (uint64_t)eh->e_shnum * sizeof(ElfW(Shdr))) &&
        !take_table(m, SHT_SYMTAB))
        (void)take_table(m, SHT_DYNSYM);
}

static struct module *module_of(struct symbols *s, const void *base, const char *path)
{
    for (unsigned i = 0; i < s->count; i++)
        if (s->module[i].base == base)
            return &s->module[i];
    if (s->count == MODULES_MAX)
        return NULL;
    struct module *m = &s->module[s->count++];
    m->base = base;
    module_read(m, strchr(path, '/') ? path : "/proc/self/exe");
    return m;
}

/* The function that holds an address of the file; NULL: none. */
static const char *module_find(const struct module *m, uint64_t addr, uint64_t *offset)
{
    const char *name = NULL;

    for (size_t i = 0; i < m->count; i++) {
        const ElfW(Sym) *y = &m->sym[i];
        if ((y->st_info & 0xf) != STT_FUNC || addr < y->st_value ||
            addr - y->st_value >= y->st_size || y->st_name >= m->names_size)
            continue;
        *offset = addr - y->st_value;
        name = m->names + y->st_name;
    }
    return name;
}

void symbol_name(struct symbols *s, const void *addr, char *out, size_t size)
{
    Dl_info info = {0};
    struct link_map *map = NULL;
    /* A return address may be the first behind its function. */
    const char *call = addr ? (const char *)addr - 1 : NULL;

    if (call == NULL || dladdr1(call, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 ||
        info.dli_fname == NULL || map == NULL) {
        snprintf(out, size, "%p", addr);
        return;
    }
    uint64_t in_file = (uint64_t)(uintptr_t)call - map->l_addr, offset = 0;
    struct module *m = module_of(s, info.dli_fbase, info.dli_fname);
    const char *name = m ? module_find(m, in_file, &offset) : NULL;
    if (name == NULL && info.dli_sname != NULL) {
        name = info.dli_sname;
        offset = (uint64_t)(call - (const char *)info.dli_saddr);
    }
    if (name == NULL) {
        const char *slash = strrchr(info.dli_fname, '/');
        name = slash ? slash + 1 : info.dli_fname;
        offset = in_file;
    }
    snprintf(out, size, "%s+0x%" PRIx64, name, offset + 1);
}
