/* SPDX-License-Identifier: BSD-2-Clause
 * Socket buffers.
 *
 * sb_cc and sb_mem always equal the sums over the chain: every change of an mbuf's length goes with
 * a change of both. mbufs of a stream are never empty. The cursor is an mbuf of the stream with the
 * offset of its first byte; it moves forward with sequential references, back to the front with
 * others, and is dropped with its mbuf. */
#include "sockbuf.h"

#include "pool.h"

#define MEM_EFFICIENCY 8 /* memory over bytes, as FreeBSD's sb_efficiency */
/* A segment up to this long is copied into the space behind the last one. */
#define COMPRESS_MAX 512
/* And into a cluster of its own size if it holds a cluster that is bigger by far. */
#define COPY_OUT_MAX 1024

void sockbuf_init(struct sockbuf *sb, struct lock_class *lc, uint32_t hiwat)
{
    memset(sb, 0, sizeof(*sb));
    lock_init(&sb->sb_lock, lc);
    atomic_init(&sb->sb_lowat, 1);
    sockbuf_reserve(sb, hiwat);
}

void sockbuf_reserve(struct sockbuf *sb, uint32_t hiwat)
{
    uint64_t memmax = (uint64_t)hiwat * MEM_EFFICIENCY;
    STORE_RELAXED(&sb->sb_hiwat, hiwat);
    STORE_RELAXED(&sb->sb_memmax, (uint32_t)MIN(memmax, (uint64_t)INT32_MAX));
}

uint32_t sockbuf_space(const struct sockbuf *sb)
{
    uint32_t cc = LOAD_RELAXED(&sb->sb_cc), mem = LOAD_RELAXED(&sb->sb_mem);
    uint32_t hiwat = LOAD_RELAXED(&sb->sb_hiwat), memmax = LOAD_RELAXED(&sb->sb_memmax);
    if (cc >= hiwat || mem >= memmax)
        return 0;
    return MIN(hiwat - cc, memmax - mem);
}

/* Written under the lock only, so no read-modify-write; release pairs with sockbuf_used. */
static void account_locked(struct sockbuf *sb, int64_t bytes, int64_t mem)
{
    uint32_t cc = LOAD_RELAXED(&sb->sb_cc) + (uint32_t)bytes;
    STORE_RELAXED(&sb->sb_mem, LOAD_RELAXED(&sb->sb_mem) + (uint32_t)mem);
    atomic_store_explicit(&sb->sb_cc, cc, memory_order_release);
}

/* --- the stream --- */

/* Copy m's bytes behind the tail if they are few and fit there. */
static bool compress_into_tail(struct sockbuf *sb, const struct mbuf *m)
{
    struct mbuf *t = sb->sb_tail;
    if (t == NULL || m->m_len > COMPRESS_MAX || mbuf_trailing(t) < m->m_len ||
        (t->m_flags ^ m->m_flags) & M_OOB)
        return false;
    uint32_t before = mbuf_mem(t);
    memcpy(t->m_data + t->m_len, m->m_data, m->m_len);
    t->m_len += m->m_len;
    account_locked(sb, m->m_len, (int64_t)mbuf_mem(t) - before);
    return true;
}

/* A small segment that holds a big cluster: move its bytes to storage of their size. Returns the
 * mbuf to append, m itself if it may stay or there is no memory. */
static struct mbuf *copy_out_of_cluster(struct mbuf *m)
{
    if (!(m->m_flags & M_EXT))
        return m;
    uint32_t limit = m->m_ext->size > CLUSTER_SIZE ? COPY_OUT_MAX : (uint32_t)MBUF_INLINE;
    if (m->m_len > limit || m->m_ext->size < CLUSTER_SIZE)
        return m;
    struct mbuf *n = mbuf_get_size(m->m_account, m->m_len);
    if (n == NULL)
        return m;
    memcpy(n->m_data, m->m_data, m->m_len);
    n->m_len = m->m_len;
    n->m_flags |= m->m_flags & (M_EOR | M_OOB);
    return n;
}

static void append_one_locked(struct sockbuf *sb, struct mbuf *m)
{
    m->m_next = NULL;
    m->m_nextpkt = NULL;
    m->m_flags &= (uint16_t)~M_PKTHDR;
    if (sb->sb_tail != NULL)
        sb->sb_tail->m_next = m;
    else
        sb->sb_mb = sb->sb_lastrec = m;
    sb->sb_tail = m;
    account_locked(sb, m->m_len, mbuf_mem(m));
}

void sockbuf_append_stream(struct sockbuf *sb, struct mbuf **mp)
{
    struct mbuf *m = *mp, *done = NULL;
    *mp = NULL;
    lock_acquire(&sb->sb_lock);
    while (m != NULL) {
        struct mbuf *next = m->m_next;
        struct mbuf *keep = NULL;
        if (m->m_len > 0 && !compress_into_tail(sb, m))
            keep = copy_out_of_cluster(m);
        if (keep != m) {
            m->m_next = done;
            done = m;
        }
        if (keep != NULL)
            append_one_locked(sb, keep);
        m = next;
    }
    lock_release(&sb->sb_lock);
    mbuf_free_chain(&done);
}

/* The cursor after n bytes in front went. */
static void cursor_shift_locked(struct sockbuf *sb, uint32_t n)
{
    sb->sb_cursor_off = n < sb->sb_cursor_off ? sb->sb_cursor_off - n : 0;
}

/* Unlink n bytes from the front; returns the mbufs that are done with, to be freed without the
 * lock. */
static struct mbuf *drop_locked(struct sockbuf *sb, uint32_t n)
{
    struct mbuf *m = sb->sb_mb, *done = NULL, **tail = &done;
    uint32_t left = n;
    int64_t mem = 0;
    while (left > 0) {
        CHECK(m != NULL);
        uint32_t before = mbuf_mem(m);
        if (left < m->m_len) {
            m->m_data += left;
            m->m_len -= left;
            mem += (int64_t)before - mbuf_mem(m);
            break;
        }
        left -= m->m_len;
        mem += before;
        if (sb->sb_cursor == m)
            sb->sb_cursor = NULL;
        *tail = m;
        tail = &m->m_next;
        m = m->m_next;
    }
    *tail = NULL;
    sb->sb_mb = sb->sb_lastrec = m;
    if (m == NULL)
        sb->sb_tail = NULL;
    sb->sb_dropped += n;
    cursor_shift_locked(sb, n);
    account_locked(sb, -(int64_t)n, -mem);
    return done;
}

void sockbuf_drop(struct sockbuf *sb, uint32_t n)
{
    if (n == 0)
        return;
    lock_acquire(&sb->sb_lock);
    struct mbuf *done = drop_locked(sb, n);
    lock_release(&sb->sb_lock);
    mbuf_free_chain(&done);
}

void sockbuf_flush(struct sockbuf *sb)
{
    lock_acquire(&sb->sb_lock);
    struct mbuf *done = drop_locked(sb, LOAD_RELAXED(&sb->sb_cc));
    lock_release(&sb->sb_lock);
    mbuf_free_chain(&done);
}

/* The mbuf that holds byte *off; *off becomes the offset in it. The cursor comes to stand there. */
static struct mbuf *seek_locked(struct sockbuf *sb, uint32_t *off)
{
    struct mbuf *m = sb->sb_cursor;
    uint32_t at = sb->sb_cursor_off;
    if (m == NULL || *off < at) {
        m = sb->sb_mb;
        at = 0;
    }
    while (m != NULL && *off - at >= m->m_len && m->m_next != NULL) {
        at += m->m_len;
        m = m->m_next;
    }
    sb->sb_cursor = m;
    sb->sb_cursor_off = at;
    *off -= at;
    return m;
}

struct mbuf *sockbuf_ref(struct sockbuf *sb, struct mbuf_account *acct, uint32_t off, uint32_t len)
{
    lock_acquire(&sb->sb_lock);
    CHECK((uint64_t)off + len <= LOAD_RELAXED(&sb->sb_cc));
    uint32_t in = off;
    const struct mbuf *m = seek_locked(sb, &in);
    struct mbuf *r = m != NULL ? mbuf_ref(acct, m, in, len) : NULL;
    /* The next reference most likely starts where this one ends. */
    if (r != NULL) {
        in = off + len;
        (void)seek_locked(sb, &in);
    }
    lock_release(&sb->sb_lock);
    return r;
}

void sockbuf_copy_out(struct sockbuf *sb, uint32_t off, uint32_t len, void *dst)
{
    if (len == 0)
        return;
    lock_acquire(&sb->sb_lock);
    CHECK((uint64_t)off + len <= LOAD_RELAXED(&sb->sb_cc));
    uint32_t in = off;
    const struct mbuf *m = seek_locked(sb, &in);
    mbuf_copy_out(m, in, len, dst);
    in = off + len;
    (void)seek_locked(sb, &in);
    lock_release(&sb->sb_lock);
}

/* --- records --- */

/* Bytes of a record that count: all but the address in front. */
static uint32_t record_len(const struct mbuf *rec)
{
    return mbuf_chain_len(rec->m_flags & M_ADDR ? rec->m_next : rec);
}

static struct mbuf *address_mbuf(struct mbuf_account *acct, const void *from, uint32_t fromlen)
{
    CHECK(fromlen <= MBUF_INLINE);
    struct mbuf *a = mbuf_get(acct);
    if (a != NULL) {
        memcpy(a->m_data, from, fromlen);
        a->m_len = fromlen;
        a->m_flags = M_ADDR;
    }
    return a;
}

/* The record's single small mbuf out of its cluster, as for streams. */
static struct mbuf *shrink_record(struct mbuf *m)
{
    if (m->m_next != NULL)
        return m;
    struct mbuf *n = copy_out_of_cluster(m);
    if (n == m)
        return m;
    n->m_flags |= m->m_flags & M_PKTHDR;
    if (m->m_flags & M_PKTHDR)
        n->m_pkt = m->m_pkt;
    mbuf_free_chain(&m);
    return n;
}

bool sockbuf_append_record(struct sockbuf *sb, struct mbuf_account *acct, const void *from,
                           uint32_t fromlen, struct mbuf **mp)
{
    struct mbuf *rec = *mp;
    *mp = NULL;
    uint32_t len = mbuf_chain_len(rec);
    if (len > sockbuf_space(sb)) {
        mbuf_free_chain(&rec);
        return false;
    }
    rec = shrink_record(rec);
    if (from != NULL) {
        struct mbuf *a = address_mbuf(acct, from, fromlen);
        if (a == NULL) {
            mbuf_free_chain(&rec);
            return false;
        }
        a->m_next = rec;
        rec = a;
    }
    struct mbuf *last = mbuf_last(rec);
    uint32_t mem = mbuf_chain_mem(rec);
    last->m_flags |= M_EOR;
    rec->m_nextpkt = NULL;
    lock_acquire(&sb->sb_lock);
    uint64_t total = (uint64_t)mem + LOAD_RELAXED(&sb->sb_mem);
    bool fits = len <= sockbuf_space(sb) && total <= LOAD_RELAXED(&sb->sb_memmax);
    if (fits) {
        if (sb->sb_lastrec != NULL)
            sb->sb_lastrec->m_nextpkt = rec;
        else
            sb->sb_mb = rec;
        sb->sb_lastrec = rec;
        sb->sb_tail = last;
        account_locked(sb, len, mem);
    }
    lock_release(&sb->sb_lock);
    if (!fits)
        mbuf_free_chain(&rec);
    return fits;
}

struct mbuf *sockbuf_take_record(struct sockbuf *sb)
{
    lock_acquire(&sb->sb_lock);
    struct mbuf *rec = sb->sb_mb;
    if (rec != NULL) {
        sb->sb_mb = rec->m_nextpkt;
        if (sb->sb_mb == NULL)
            sb->sb_lastrec = sb->sb_tail = NULL;
        rec->m_nextpkt = NULL;
        account_locked(sb, -(int64_t)record_len(rec), -(int64_t)mbuf_chain_mem(rec));
    }
    lock_release(&sb->sb_lock);
    return rec;
}

void sockbuf_fini(struct sockbuf *sb)
{
    lock_acquire(&sb->sb_lock);
    struct mbuf *rec = sb->sb_mb;
    sb->sb_mb = sb->sb_tail = sb->sb_lastrec = sb->sb_cursor = NULL;
    sb->sb_cursor_off = 0;
    STORE_RELAXED(&sb->sb_cc, 0);
    STORE_RELAXED(&sb->sb_mem, 0);
    lock_release(&sb->sb_lock);
    while (rec != NULL) {
        struct mbuf *next = rec->m_nextpkt;
        mbuf_free_chain(&rec);
        rec = next;
    }
}
