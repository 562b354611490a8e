/* SPDX-License-Identifier: BSD-2-Clause
 * Socket buffers.
 *
 * How a stream works. It is a chain with one producer, who knows the last mbuf (sb_tail), and one
 * consumer, who knows the first (sb_mb) and how much of it has left (sb_off). Each counts what it
 * did (sb_in, sb_out), and what is in the buffer is the difference: nobody writes what the other
 * writes. The producer links with a release store, then publishes sb_in; the consumer looks at
 * nothing beyond the sb_in that it read.
 *
 * - The producer fills the last mbuf's trailing space, so the consumer changes neither the data
 *   pointer nor the length of an mbuf, and asks for the link before the length: an mbuf that has a
 *   successor does not grow any more.
 * - While it appends, sb_tail is BUSY. The consumer frees what has a successor; the last mbuf it
 *   frees only after it replaced sb_tail by NULL with a compare-and-swap, which fails while the
 *   producer appends: then the mbuf stays until next time.
 * - It may have grown between the look at its length and the swap. Then the consumer keeps it
 *   (sb_split): it is the end of a chain now, to which nothing is linked.
 * - A producer that finds NULL begins a chain in sb_first. The consumer takes it from there when it
 *   has nothing else, and sb_in tells of more.
 *
 * With net.inet.tcp.soreceive_stream 0 and 1 both do all this under sb_lock, which then is as
 * needless as it is instructive: the structure is the same, so the mode may change at any time.
 *
 * sb_in - sb_out and sb_mem_in - sb_mem_out are exact while neither works: every change of an
 * mbuf's length goes with one of both sums; what an mbuf costs is counted out when it is freed.
 * mbufs of a stream are never empty. The cursor is an mbuf of the stream with the position of its
 * first byte; it moves forward with sequential references, back to the front with others, and is
 * dropped with its mbuf. */
#include "sockbuf.h"

#include "pool.h"

#define MEM_EFFICIENCY 8 /* memory over bytes, as FreeBSD's sb_efficiency */
/* A segment up to this long is copied into the space behind the last one. */
#define COMPRESS_MAX 512
/* And into a cluster of its own size if it holds a cluster that is bigger by far. */
#define COPY_OUT_MAX 1024
/* sb_tail while the producer appends. */
#define BUSY ((struct mbuf *)1)

void sockbuf_init(struct sockbuf *sb, struct lock_class *lc, uint32_t hiwat)
{
    memset(sb, 0, sizeof(*sb));
    lock_init(&sb->sb_lock, lc);
    atomic_init(&sb->sb_lowat, 1);
    sockbuf_reserve(sb, hiwat);
}

void sockbuf_set_mode(struct sockbuf *sb, const _Atomic int64_t *mode)
{
    sb->sb_mode = mode;
}

void sockbuf_reserve(struct sockbuf *sb, uint32_t hiwat)
{
    uint64_t memmax = (uint64_t)hiwat * MEM_EFFICIENCY;
    STORE_RELAXED(&sb->sb_hiwat, hiwat);
    STORE_RELAXED(&sb->sb_memmax, (uint32_t)MIN(memmax, (uint64_t)INT32_MAX));
}

uint32_t sockbuf_mem(const struct sockbuf *sb)
{
    uint32_t out = atomic_load_explicit(&sb->sb_mem_out, memory_order_acquire);
    uint32_t mem = atomic_load_explicit(&sb->sb_mem_in, memory_order_acquire) - out;
    const struct sockbuf_lent *lent = atomic_load_explicit(&sb->sb_lent, memory_order_acquire);
    return unlikely(lent != NULL) ? mem + LOAD_RELAXED(&lent->mem) : mem;
}

uint32_t sockbuf_space(const struct sockbuf *sb)
{
    uint32_t cc = sockbuf_used(sb), mem = sockbuf_mem(sb);
    uint32_t hiwat = LOAD_RELAXED(&sb->sb_hiwat), memmax = LOAD_RELAXED(&sb->sb_memmax);
    if (cc >= hiwat || mem >= memmax)
        return 0;
    return MIN(hiwat - cc, memmax - mem);
}

/* Sums have one writer, so no read-modify-write. The bytes come last: they publish the rest. */
static void count_in(struct sockbuf *sb, uint32_t bytes, uint32_t mem)
{
    STORE_RELAXED(&sb->sb_mem_in, LOAD_RELAXED(&sb->sb_mem_in) + mem);
    atomic_store_explicit(&sb->sb_in, LOAD_RELAXED(&sb->sb_in) + bytes, memory_order_release);
}

static void count_out(struct sockbuf *sb, uint32_t bytes, uint32_t mem)
{
    STORE_RELAXED(&sb->sb_mem_out, LOAD_RELAXED(&sb->sb_mem_out) + mem);
    atomic_store_explicit(&sb->sb_out, LOAD_RELAXED(&sb->sb_out) + bytes, memory_order_release);
}

/* --- streams: the producer --- */

/* Copy m's bytes behind the tail t if they are few and fit there. *mem (may be NULL) grows by what
 * t costs more. */
static bool compress_into_tail(struct mbuf *t, const struct mbuf *m, uint32_t *mem)
{
    if (t == NULL || m->m_len > COMPRESS_MAX || mbuf_trailing(t) < m->m_len ||
        (t->m_flags ^ m->m_flags) & M_OOB || m->m_flags & M_VOLATILE)
        return false;
    uint32_t before = mbuf_mem(t);
    memcpy(t->m_data + t->m_len, m->m_data, m->m_len);
    __atomic_store_n(&t->m_len, t->m_len + m->m_len, __ATOMIC_RELAXED);
    if (mem != NULL)
        *mem += mbuf_mem(t) - before;
    return true;
}

/* A small segment that holds a big cluster: move its bytes to storage of their size. Returns the
 * mbuf to append, m itself if it may stay or there is no memory. */
static struct mbuf *copy_out_of_cluster(struct mbuf *m)
{
    if (!(m->m_flags & M_EXT) || m->m_flags & M_VOLATILE)
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

/* What is appended at once. */
struct batch {
    struct mbuf *head, *last; /* linked; the head is as it came */
    struct mbuf *done;        /* to be freed */
    uint32_t bytes;
    uint32_t mem; /* of all behind the head */
};

static void set_aside(struct batch *b, struct mbuf *m)
{
    m->m_next = b->done;
    b->done = m;
}

static void batch_add(struct batch *b, struct mbuf *m)
{
    uint32_t len = m->m_len;
    struct mbuf *keep = NULL;
    if (b->head == NULL && len > 0)
        keep = m;
    else if (len > 0 && !compress_into_tail(b->last, m, b->last == b->head ? NULL : &b->mem))
        keep = copy_out_of_cluster(m);
    if (keep != m)
        set_aside(b, m);
    b->bytes += len;
    if (keep == NULL)
        return;
    keep->m_next = NULL;
    keep->m_nextpkt = NULL;
    keep->m_flags &= (uint16_t)~M_PKTHDR;
    if (b->head == NULL) {
        b->head = keep;
    } else {
        b->last->m_next = keep;
        b->mem += mbuf_mem(keep);
    }
    b->last = keep;
}

/* Whether the head goes into the tail, or needs storage of its own size, is seen here. */
static void batch_append(struct sockbuf *sb, struct batch *b)
{
    /* Acquire: after a consumer that took the last mbuf away. */
    struct mbuf *t = atomic_exchange_explicit(&sb->sb_tail, BUSY, memory_order_acquire);
    struct mbuf *first = b->head, *rest = first->m_next;
    uint32_t mem = b->mem;

    if (compress_into_tail(t, first, &mem)) {
        set_aside(b, first);
        first = rest;
    } else {
        struct mbuf *keep = copy_out_of_cluster(first);
        mem += mbuf_mem(keep);
        if (keep != first) {
            set_aside(b, first);
            keep->m_next = rest;
            b->last = rest != NULL ? b->last : keep;
            first = keep;
        }
    }
    if (first != NULL) {
        if (likely(t != NULL))
            __atomic_store_n(&t->m_next, first, __ATOMIC_RELEASE);
        else
            sb->sb_first = first;
        t = b->last;
    }
    /* Before the bytes: so a consumer that sees them all finds a tail that it can take. */
    atomic_store_explicit(&sb->sb_tail, t, memory_order_release);
    count_in(sb, b->bytes, mem);
}

void sockbuf_append_stream(struct sockbuf *sb, struct mbuf **mp)
{
    struct batch b = {0};

    for (struct mbuf *m = *mp, *next; m != NULL; m = next) {
        next = m->m_next;
        batch_add(&b, m);
    }
    *mp = NULL;
    if (likely(b.head != NULL)) {
        if (sockbuf_is_locked(sb)) {
            lock_acquire(&sb->sb_lock);
            batch_append(sb, &b);
            lock_release(&sb->sb_lock);
        } else {
            batch_append(sb, &b);
        }
    }
    mbuf_free_chain(&b.done);
}

/* --- streams: the consumer --- */

/* Go on with a chain that began while the buffer was empty. used: as sockbuf_used told. */
static void join(struct sockbuf *sb, uint32_t used)
{
    struct mbuf *m = sb->sb_mb;
    if (m == NULL) {
        if (used == 0)
            return;
        sb->sb_mb = sb->sb_first;
    } else {
        if (!sb->sb_split || used <= m->m_len - sb->sb_off)
            return;
        m->m_next = sb->sb_first;
        sb->sb_split = false;
    }
    sb->sb_first = NULL;
}

const struct mbuf *sockbuf_head(struct sockbuf *sb, uint32_t *off)
{
    if (unlikely(sb->sb_mb == NULL || sb->sb_split))
        join(sb, sockbuf_used(sb));
    *off = sb->sb_off;
    return sb->sb_mb;
}

/* Make the last mbuf, of which `off` bytes have left, the consumer's alone. False: it is not the
 * last, or holds more by now. */
static bool take_last(struct sockbuf *sb, struct mbuf *m, uint32_t off)
{
    struct mbuf *expected = m;
    if (sb->sb_split) {
        sb->sb_split = false;
        return true;
    }
    /* Release: sb_first was taken. Acquire: what the producer put into m. */
    if (!atomic_compare_exchange_strong_explicit(&sb->sb_tail, &expected, NULL,
                                                 memory_order_acq_rel, memory_order_relaxed))
        return false;
    sb->sb_split = m->m_len != off;
    return !sb->sb_split;
}

void sockbuf_find(struct sockbuf *sb, uint32_t n, struct sockbuf_cut *c)
{
    struct mbuf *m = (struct mbuf *)(uintptr_t)sockbuf_head(sb, &c->off);
    c->n = n;
    c->mem = 0;
    c->last = NULL;
    while (m != NULL) {
        struct mbuf *next = sockbuf_next(m); /* before the length */
        uint32_t have = sockbuf_len(m) - c->off;
        if (n < have || next == NULL)
            break;
        n -= have;
        c->mem += mbuf_mem(m);
        c->off = 0;
        c->last = m;
        m = next;
    }
    c->next = m;
    c->off += n;
    CHECK(m != NULL ? c->off <= sockbuf_len(m) : n == 0);
}

/* Make what was found the front, without telling the producer. */
static struct mbuf *advance(struct sockbuf *sb, struct sockbuf_cut *c)
{
    struct mbuf *m = c->next, *done = NULL;
    if (m != NULL && sockbuf_next(m) == NULL && c->off == sockbuf_len(m) &&
        take_last(sb, m, c->off)) {
        c->mem += mbuf_mem(m);
        c->last = m;
        c->next = NULL;
        c->off = 0;
    }
    if (c->last != NULL) {
        done = sb->sb_mb;
        c->last->m_next = NULL;
    }
    sb->sb_mb = c->next;
    sb->sb_off = c->off;
    /* The cursor's mbuf is gone if it begins in front of what is first now. */
    uint32_t front = LOAD_RELAXED(&sb->sb_out) + c->n - c->off;
    if (c->next == NULL || (int32_t)(sb->sb_cursor_at - front) < 0)
        sb->sb_cursor = NULL;
    return done;
}

struct mbuf *sockbuf_cut(struct sockbuf *sb, struct sockbuf_cut *c)
{
    struct mbuf *done = advance(sb, c);
    count_out(sb, c->n, c->mem);
    return done;
}

struct mbuf *sockbuf_unlink(struct sockbuf *sb, uint32_t n)
{
    struct sockbuf_cut c;
    sockbuf_find(sb, n, &c);
    return sockbuf_cut(sb, &c);
}

void sockbuf_drop(struct sockbuf *sb, uint32_t n)
{
    struct mbuf *done;
    if (n == 0)
        return;
    if (sockbuf_is_locked(sb)) {
        lock_acquire(&sb->sb_lock);
        done = sockbuf_unlink(sb, n);
        lock_release(&sb->sb_lock);
    } else {
        done = sockbuf_unlink(sb, n);
    }
    mbuf_free_chain(&done);
}

void sockbuf_flush(struct sockbuf *sb)
{
    sockbuf_drop(sb, sockbuf_used(sb));
}

/* The mbuf that holds byte *off; *off becomes the offset in it. The cursor comes to stand there. */
static const struct mbuf *seek(struct sockbuf *sb, uint32_t *off)
{
    uint32_t front, at = LOAD_RELAXED(&sb->sb_out) + *off;
    struct mbuf *m = (struct mbuf *)(uintptr_t)sockbuf_head(sb, &front);
    uint32_t first = at - *off - front;

    if (m == NULL)
        return NULL;
    if (sb->sb_cursor != NULL && at - first >= sb->sb_cursor_at - first) {
        m = sb->sb_cursor;
        first = sb->sb_cursor_at;
    }
    while (true) {
        struct mbuf *next = sockbuf_next(m); /* before the length */
        uint32_t len = sockbuf_len(m);
        if (at - first < len || next == NULL)
            break;
        first += len;
        m = next;
    }
    sb->sb_cursor = m;
    sb->sb_cursor_at = first;
    *off = at - first;
    return m;
}

struct mbuf *sockbuf_ref(struct sockbuf *sb, struct mbuf_account *acct, uint32_t off, uint32_t len)
{
    CHECK((uint64_t)off + len <= sockbuf_used(sb));
    uint32_t in = off;
    const struct mbuf *m = seek(sb, &in);
    struct mbuf *r = m != NULL ? mbuf_ref(acct, m, in, len) : NULL;
    /* The next reference most likely starts where this one ends. */
    if (likely(r != NULL)) {
        in = off + len;
        (void)seek(sb, &in);
    }
    return r;
}

/* Bytes [off, off+len) of the chain, which were copied, were what they stood for. */
static bool range_intact(const struct mbuf *m, uint32_t off, uint32_t len)
{
    for (; true; m = sockbuf_next(m), off = 0) {
        uint32_t n = sockbuf_len(m) - off;
        n = MIN(len, n);
        if (unlikely(m->m_flags & M_VOLATILE) && n > 0 &&
            !m->m_ext->intact(m->m_ext, m->m_data + off, n))
            return false;
        len -= n;
        if (len == 0)
            return true;
    }
}

bool sockbuf_copy_out(struct sockbuf *sb, uint32_t off, uint32_t len, void *dst)
{
    if (len == 0)
        return true;
    CHECK((uint64_t)off + len <= sockbuf_used(sb));
    uint32_t in = off;
    const struct mbuf *m = seek(sb, &in);
    mbuf_copy_out(m, in, len, dst);
    bool intact = range_intact(m, in, len);
    in = off + len;
    (void)seek(sb, &in);
    return intact;
}

/* --- streams: lending --- */

/* It lives in an mbuf, whose memory outlives socket and stack. */
static struct sockbuf_lent *lent_of(struct sockbuf *sb, struct mbuf_account *acct)
{
    struct sockbuf_lent *lent = LOAD_RELAXED(&sb->sb_lent);
    if (likely(lent != NULL))
        return lent;
    struct mbuf *m = mbuf_get(acct);
    if (m == NULL)
        return NULL;
    _Static_assert(sizeof(*lent) <= MBUF_INLINE, "fits into an mbuf");
    lent = (struct sockbuf_lent *)(void *)m->m_dat;
    atomic_init(&lent->refs, 1);
    atomic_init(&lent->mem, 0);
    atomic_store_explicit(&sb->sb_lent, lent, memory_order_release);
    return lent;
}

static void lent_drop(struct sockbuf_lent *lent)
{
    if (atomic_fetch_sub_explicit(&lent->refs, 1, memory_order_acq_rel) == 1)
        (void)mbuf_free(CONTAINER_OF(lent, struct mbuf, m_dat));
}

/* Of the first n bytes, those that `pieces` mbufs hold, as long as nobody can cut them. */
static uint32_t reach(struct sockbuf *sb, uint32_t n, int pieces)
{
    uint32_t off, sum = 0;
    const struct mbuf *m = sockbuf_head(sb, &off);
    while (true) {
        uint32_t have = sockbuf_len(m) - off;
        if (m->m_flags & M_VOLATILE && have > 0)
            return sum;
        pieces -= have > 0; /* of the first one all may have left */
        sum += MIN(have, n - sum);
        if (sum == n || pieces == 0)
            return sum;
        m = sockbuf_next(m);
        off = 0;
    }
}

/* What was taken of the mbuf that is first now, but stays in the chain; *n shrinks if there is no
 * memory for it, and the bytes stay. */
static struct mbuf *share_front(struct sockbuf *sb, struct mbuf_account *acct, uint32_t from,
                                uint32_t *n)
{
    uint32_t len = sb->sb_off - from;
    if (sb->sb_mb == NULL || len == 0)
        return NULL;
    struct mbuf *m = mbuf_ref(acct, sb->sb_mb, from, len);
    if (m == NULL) {
        sb->sb_off = from;
        *n -= len;
    }
    return m;
}

/* Take n bytes as they are; *mem: what is freed of the buffer by that. */
static struct mbuf *take_front(struct sockbuf *sb, struct mbuf_account *acct, uint32_t *n,
                               uint32_t *mem)
{
    struct sockbuf_cut c;
    uint32_t off = sb->sb_off;
    sockbuf_find(sb, *n, &c);
    struct mbuf *taken = advance(sb, &c), **tail = &taken;
    *mem = c.mem;
    if (taken != NULL) {
        taken->m_data += off;
        taken->m_len -= off;
        if (taken->m_len == 0)
            taken = mbuf_free(taken);
        off = 0;
    }
    while (*tail != NULL)
        tail = &(*tail)->m_next;
    *tail = share_front(sb, acct, off, n);
    return taken;
}

/* A copy of the volatile bytes in front. */
static int copy_front(struct sockbuf *sb, struct mbuf_account *acct, uint32_t *n, uint32_t *mem,
                      struct mbuf **copy)
{
    uint32_t off;
    const struct mbuf *m = sockbuf_head(sb, &off);
    while (sockbuf_len(m) == off) {
        m = sockbuf_next(m);
        off = 0;
    }
    *n = MIN(*n, MIN(sockbuf_len(m) - off, (uint32_t)BIGCLUSTER_64K));
    struct mbuf *c = mbuf_get_size(acct, *n);
    if (c == NULL)
        return -ENOBUFS;
    memcpy(c->m_data, m->m_data + off, *n);
    c->m_len = *n;
    if (!mbuf_intact(m)) {
        (void)mbuf_free(c);
        return -EIO;
    }
    struct sockbuf_cut cut;
    sockbuf_find(sb, *n, &cut);
    struct mbuf *done = advance(sb, &cut);
    *mem = cut.mem;
    mbuf_free_chain(&done);
    *copy = c;
    return 0;
}

int sockbuf_lend(struct sockbuf *sb, struct mbuf_account *acct, uint32_t n, int pieces,
                 struct mbuf **chain, struct sockbuf_lent **from)
{
    struct sockbuf_lent *lent = *from = lent_of(sb, acct);
    uint32_t plain = reach(sb, n, pieces), mem = 0, lent_mem = 0, count = 0;
    int error = 0;

    *chain = NULL;
    if (lent == NULL)
        return -ENOBUFS;
    if (likely(plain > 0)) {
        n = plain;
        *chain = take_front(sb, acct, &n, &mem);
    } else {
        error = copy_front(sb, acct, &n, &mem, chain);
    }
    if (*chain == NULL) {
        count_out(sb, 0, mem); /* of a drained mbuf that went */
        return error ? error : -ENOBUFS;
    }
    for (const struct mbuf *m = *chain; m != NULL; m = m->m_next, count++)
        lent_mem += mbuf_mem(m);
    atomic_fetch_add_explicit(&lent->refs, count, memory_order_relaxed);
    atomic_fetch_add_explicit(&lent->mem, lent_mem, memory_order_relaxed);
    count_out(sb, n, mem);
    return 0;
}

void sockbuf_give_back(struct sockbuf_lent *from, struct mbuf *m)
{
    atomic_fetch_sub_explicit(&from->mem, mbuf_mem(m), memory_order_release);
    (void)mbuf_free(m);
    lent_drop(from);
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
    uint64_t total = (uint64_t)mem + sockbuf_mem(sb);
    bool fits = len <= sockbuf_space(sb) && total <= LOAD_RELAXED(&sb->sb_memmax);
    if (fits) {
        if (sb->sb_lastrec != NULL)
            sb->sb_lastrec->m_nextpkt = rec;
        else
            sb->sb_mb = rec;
        sb->sb_lastrec = rec;
        STORE_RELAXED(&sb->sb_tail, last);
        count_in(sb, len, mem);
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
        if (sb->sb_mb == NULL) {
            sb->sb_lastrec = NULL;
            STORE_RELAXED(&sb->sb_tail, NULL);
        }
        rec->m_nextpkt = NULL;
        count_out(sb, record_len(rec), mbuf_chain_mem(rec));
    }
    lock_release(&sb->sb_lock);
    return rec;
}

void sockbuf_fini(struct sockbuf *sb)
{
    struct sockbuf_lent *lent = LOAD_RELAXED(&sb->sb_lent);
    struct mbuf *rec = sb->sb_mb;
    mbuf_free_chain(&sb->sb_first);
    while (rec != NULL) {
        struct mbuf *next = rec->m_nextpkt;
        mbuf_free_chain(&rec);
        rec = next;
    }
    if (lent != NULL)
        lent_drop(lent);
    sb->sb_mb = sb->sb_lastrec = sb->sb_cursor = NULL;
    sb->sb_off = 0;
    sb->sb_split = false;
    STORE_RELAXED(&sb->sb_lent, NULL);
    STORE_RELAXED(&sb->sb_tail, NULL);
    STORE_RELAXED(&sb->sb_out, LOAD_RELAXED(&sb->sb_in));
    STORE_RELAXED(&sb->sb_mem_out, LOAD_RELAXED(&sb->sb_mem_in));
}
