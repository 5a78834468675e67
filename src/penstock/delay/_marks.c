/* Compiled form of `marking` and `packing`: the delays, cancellations and origins in the headers of a batch, blocks of
   delayed messages, and the bits of settled messages. Long bodies are read, and messages sorted, without the GIL. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>
#include <string.h>

#include "../records/walk.h"

#define MIN_RECORD_BYTES 7
#define LONG_BODY_BYTES 4096
#define MAX_DIGITS 18
#define MAX_TIME_MS 253402300799999LL /* headers.MAX_TIME_MS */
#define NONE (-1)

/* The Python form is `marking.MARK`. */
typedef struct {
    int64_t offset_delta, timestamp_delta;
    int64_t kind, value;
    int64_t origin, origin_timestamp;
    int64_t headers_start, header_count;
} Mark;

enum { OTHER, DELAY_MS, DELIVER_AT, CANCEL, DELIVERED };

typedef struct {
    Mark *marks;
    Py_ssize_t count, room;
    int64_t max_delay_ms, max_time_ms; /* -1: every delay is a mark */
    int is_consecutive;
} Found;

static int is_name(const unsigned char *name, int64_t size, const char *wanted)
{
    return size == (int64_t)strlen(wanted) && memcmp(name, wanted, (size_t)size) == 0;
}

/* The number in decimal digits; -1 for anything else. */
static int64_t read_digits(const unsigned char *text, int64_t size)
{
    int64_t value = 0;
    if (size < 1 || size > MAX_DIGITS)
        return NONE;
    for (int64_t place = 0; place < size; place++) {
        if (text[place] < '0' || text[place] > '9')
            return NONE;
        value = value * 10 + (text[place] - '0');
    }
    return value;
}

/* Read the headers of a record; returns 1 if it has one of ours. Anything unusual is of the kind OTHER. */
static int read_mark(const unsigned char *body, const Layout *layout, Mark *mark)
{
    Cursor cursor = {body + layout->headers_start, body + layout->end, 0};
    int is_marked = 0, is_odd = 0;
    mark->offset_delta = layout->offset_delta;
    mark->timestamp_delta = layout->timestamp_delta;
    mark->kind = DELIVERED;
    mark->value = mark->origin = mark->origin_timestamp = NONE;
    mark->headers_start = layout->headers_start;
    mark->header_count = layout->header_count;
    for (int64_t place = 0; place < layout->header_count; place++) {
        const unsigned char *name, *value;
        int64_t name_size, value_size, number;
        read_header(&cursor, &name, &name_size, &value, &value_size);
        if (name_size < 15 || memcmp(name, "penstock-", 9) != 0)
            continue;
        int kind = is_name(name, name_size, "penstock-delay-ms")     ? DELAY_MS
                   : is_name(name, name_size, "penstock-deliver-at") ? DELIVER_AT
                   : is_name(name, name_size, "penstock-cancel")     ? CANCEL
                                                                     : OTHER;
        int is_origin = is_name(name, name_size, "penstock-origin-offset");
        int is_origin_time = is_name(name, name_size, "penstock-origin-timestamp");
        if (kind == OTHER && !is_origin && !is_origin_time)
            continue;
        is_marked = 1;
        number = read_digits(value, value_size);
        if (number < 0 || (kind == DELIVER_AT && number > MAX_TIME_MS)) {
            is_odd = 1;
        } else if (kind != OTHER) {
            is_odd |= mark->kind != DELIVERED;
            mark->kind = kind;
            mark->value = number;
        } else if (is_origin) {
            is_odd |= mark->origin != NONE;
            mark->origin = number;
        } else {
            is_odd |= mark->origin_timestamp != NONE;
            mark->origin_timestamp = number;
        }
    }
    if (is_odd)
        mark->kind = OTHER;
    return is_marked;
}

static int is_wanted(const Found *found, const Mark *mark)
{
    if (found->max_delay_ms < 0 || mark->origin != NONE || mark->origin_timestamp != NONE)
        return 1;
    return !((mark->kind == DELAY_MS && mark->value <= found->max_delay_ms) ||
             (mark->kind == DELIVER_AT && mark->value <= found->max_time_ms));
}

/* Returns 0, -1 if the records are not valid, -2 without memory. */
static int find_all(const unsigned char *body, Py_ssize_t size, Py_ssize_t count, Found *found)
{
    Cursor cursor = {body, body + size, 0};
    for (Py_ssize_t place = 0; place < count; place++) {
        Layout layout;
        Mark mark;
        if (lay_out_record(&cursor, body, &layout) < 0)
            return -1;
        found->is_consecutive &= layout.offset_delta == place;
        if (layout.header_count == 0 || !read_mark(body, &layout, &mark) || !is_wanted(found, &mark))
            continue;
        if (found->count == found->room) {
            Py_ssize_t room = found->room ? 2 * found->room : 64;
            Mark *larger = PyMem_RawRealloc(found->marks, (size_t)room * sizeof(Mark));
            if (larger == NULL)
                return -2;
            found->marks = larger;
            found->room = room;
        }
        found->marks[found->count++] = mark;
    }
    return cursor.at == cursor.end ? 0 : -1;
}

static PyObject *find_marks(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer body;
    Py_ssize_t count;
    long long max_delay_ms, max_time_ms;
    if (!PyArg_ParseTuple(arguments, "y*nLL", &body, &count, &max_delay_ms, &max_time_ms))
        return NULL;
    Found found = {NULL, 0, 0, max_delay_ms, max_time_ms, 1};
    int result = -1;
    PyObject *packed = NULL;
    if (count <= body.len / MIN_RECORD_BYTES) {
        if (body.len >= LONG_BODY_BYTES) {
            Py_BEGIN_ALLOW_THREADS
            result = find_all(body.buf, body.len, count, &found);
            Py_END_ALLOW_THREADS
        } else {
            result = find_all(body.buf, body.len, count, &found);
        }
    }
    if (result == 0)
        packed = Py_BuildValue("y#O", (const char *)(found.count ? (void *)found.marks : (void *)""),
                               found.count * (Py_ssize_t)sizeof(Mark), found.is_consecutive ? Py_True : Py_False);
    else if (result == -2)
        PyErr_NoMemory();
    else
        PyErr_SetString(PyExc_ValueError, "no valid record");
    PyMem_RawFree(found.marks);
    PyBuffer_Release(&body);
    return packed;
}

static PyObject *clear_bits(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer bits, ids;
    long long first_id;
    if (!PyArg_ParseTuple(arguments, "w*Ly*", &bits, &first_id, &ids))
        return NULL;
    Py_ssize_t cleared = 0;
    unsigned char *bytes = bits.buf;
    for (Py_ssize_t place = 0; place < ids.len / (Py_ssize_t)sizeof(int64_t); place++) {
        int64_t id;
        memcpy(&id, (const char *)ids.buf + place * (Py_ssize_t)sizeof(int64_t), sizeof id);
        if (id < first_id || (id - first_id) >> 3 >= bits.len)
            continue;
        unsigned char bit = (unsigned char)(1 << ((id - first_id) & 7));
        unsigned char *byte = &bytes[(id - first_id) >> 3];
        cleared += (*byte & bit) != 0;
        *byte &= (unsigned char)~bit;
    }
    PyBuffer_Release(&bits);
    PyBuffer_Release(&ids);
    return PyLong_FromSsize_t(cleared);
}

/* --- blocks of delayed messages, in the form of `due_blocks` */

#define MAX_SPAN_MS UINT32_MAX

/* The Python form is `packing.PAIR`. */
typedef struct {
    int64_t due_ms, message;
} Pair;

typedef struct {
    unsigned char *bytes;
    size_t size, room;
} Buffer;

static PyObject *plain_delays(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer packed;
    long long base_offset, time_ms;
    int is_relative;
    if (!PyArg_ParseTuple(arguments, "y*LLp", &packed, &base_offset, &time_ms, &is_relative))
        return NULL;
    Py_ssize_t count = packed.len / (Py_ssize_t)sizeof(Mark);
    PyObject *pairs = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(Pair));
    for (Py_ssize_t place = 0; pairs != NULL && place < count; place++) {
        Mark mark;
        Pair pair;
        int64_t stored_ms = time_ms;
        memcpy(&mark, (const char *)packed.buf + place * (Py_ssize_t)sizeof mark, sizeof mark);
        pair.due_ms = mark.value;
        pair.message = base_offset + mark.offset_delta;
        if ((mark.kind != DELAY_MS && mark.kind != DELIVER_AT) || mark.origin != NONE ||
            (is_relative && __builtin_add_overflow(time_ms, mark.timestamp_delta, &stored_ms)) ||
            (mark.kind == DELAY_MS && __builtin_add_overflow(stored_ms, mark.value, &pair.due_ms))) {
            Py_DECREF(pairs);
            pairs = Py_NewRef(Py_None);
            break;
        }
        memcpy(PyBytes_AS_STRING(pairs) + place * (Py_ssize_t)sizeof pair, &pair, sizeof pair);
    }
    PyBuffer_Release(&packed);
    return pairs;
}

static int by_message(const void *left, const void *right)
{
    int64_t a = ((const Pair *)left)->message, b = ((const Pair *)right)->message;
    return (a > b) - (a < b);
}

static int by_due_time(const void *left, const void *right)
{
    int64_t a = ((const Pair *)left)->due_ms, b = ((const Pair *)right)->due_ms;
    return a == b ? by_message(left, right) : (a > b) - (a < b);
}

static void sort(Pair *pairs, size_t count, int (*compare)(const void *, const void *))
{
    for (size_t place = 1; place < count; place++)
        if (compare(&pairs[place - 1], &pairs[place]) > 0) {
            qsort(pairs, count, sizeof(Pair), compare);
            return;
        }
}

/* Room for more bytes at the end of a buffer; NULL without memory. */
static unsigned char *extend(Buffer *buffer, size_t size)
{
    if (buffer->room - buffer->size < size) {
        size_t room = 2 * buffer->room + size;
        unsigned char *larger = PyMem_RawRealloc(buffer->bytes, room);
        if (larger == NULL)
            return NULL;
        buffer->bytes = larger;
        buffer->room = room;
    }
    buffer->size += size;
    return buffer->bytes + buffer->size - size;
}

static int put(Buffer *buffer, const void *value, size_t size)
{
    unsigned char *place = extend(buffer, size);
    if (place != NULL)
        memcpy(place, value, size);
    return place != NULL;
}

/* Number of messages from the first on whose due times fit into four bytes each. */
static size_t run_length(const Pair *pairs, size_t count)
{
    size_t length = 1;
    while (length < count && (uint64_t)pairs[length].due_ms - (uint64_t)pairs->due_ms <= MAX_SPAN_MS)
        length++;
    return length;
}

static int put_run(Buffer *buffer, const Pair *pairs, size_t count, int64_t first_id)
{
    uint32_t length = (uint32_t)count;
    if (!put(buffer, &pairs->due_ms, sizeof pairs->due_ms) || !put(buffer, &length, sizeof length))
        return 0;
    unsigned char *numbers = extend(buffer, 8 * count);
    if (numbers == NULL)
        return 0;
    for (size_t place = 0; place < count; place++) {
        uint32_t due = (uint32_t)(pairs[place].due_ms - pairs->due_ms);
        uint32_t id = (uint32_t)(pairs[place].message - first_id);
        memcpy(numbers + 4 * place, &due, sizeof due);
        memcpy(numbers + 4 * (count + place), &id, sizeof id);
    }
    return 1;
}

/* Add the block of messages that are sorted by id; returns 0 without memory. */
static int put_block(Buffer *buffer, Pair *pairs, size_t count)
{
    int64_t first_id = pairs->message;
    uint32_t size = (uint32_t)(pairs[count - 1].message - first_id + 1), runs = 0;
    sort(pairs, count, by_due_time);
    for (size_t place = 0; place < count; place += run_length(pairs + place, count - place))
        runs++;
    if (!put(buffer, &first_id, sizeof first_id) || !put(buffer, &size, sizeof size) ||
        !put(buffer, &runs, sizeof runs))
        return 0;
    for (size_t place = 0, length; place < count; place += length) {
        length = run_length(pairs + place, count - place);
        if (!put_run(buffer, pairs + place, length, first_id))
            return 0;
    }
    unsigned char *bits = extend(buffer, ((size_t)size + 7) >> 3);
    if (bits == NULL)
        return 0;
    memset(bits, 0, ((size_t)size + 7) >> 3);
    for (size_t place = 0; place < count; place++) {
        int64_t relative = pairs[place].message - first_id;
        bits[relative >> 3] |= (unsigned char)(1 << (relative & 7));
    }
    return 1;
}

static int put_blocks(Buffer *buffer, Pair *pairs, size_t count, int64_t block_ids, size_t block_messages)
{
    sort(pairs, count, by_message);
    for (size_t start = 0, end; start < count; start = end) {
        int64_t part = pairs[start].message / block_ids;
        for (end = start + 1; end < count && end - start < block_messages; end++)
            if (pairs[end].message / block_ids != part)
                break;
        if (!put_block(buffer, pairs + start, end - start))
            return 0;
    }
    return 1;
}

static PyObject *pack_blocks(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer packed;
    long long block_ids;
    Py_ssize_t block_messages;
    if (!PyArg_ParseTuple(arguments, "y*Ln", &packed, &block_ids, &block_messages))
        return NULL;
    PyObject *blocks = NULL;
    Buffer buffer = {NULL, 0, 0};
    Pair *pairs = PyMem_RawMalloc((size_t)packed.len + 1);
    int is_done = 0;
    if (block_ids < 1 || block_ids > UINT32_MAX || block_messages < 1) {
        PyErr_SetString(PyExc_ValueError, "blocks have messages, and ids of four bytes");
    } else {
        if (pairs != NULL) {
            Py_BEGIN_ALLOW_THREADS
            memcpy(pairs, packed.buf, (size_t)packed.len);
            is_done = put_blocks(&buffer, pairs, (size_t)packed.len / sizeof(Pair), block_ids, (size_t)block_messages);
            Py_END_ALLOW_THREADS
        }
        if (is_done)
            blocks = PyBytes_FromStringAndSize((const char *)buffer.bytes, (Py_ssize_t)buffer.size);
        else
            PyErr_NoMemory();
    }
    PyMem_RawFree(pairs);
    PyMem_RawFree(buffer.bytes);
    PyBuffer_Release(&packed);
    return blocks;
}

static PyMethodDef methods[] = {
    {"find_marks", find_marks, METH_VARARGS, "Packed marks of the records of a body, see marking.py."},
    {"clear_bits", clear_bits, METH_VARARGS, "Clear the bits of ids; returns how many were set."},
    {"plain_delays", plain_delays, METH_VARARGS, "Delayed messages of a batch that has no other marks, see packing.py."},
    {"pack_blocks", pack_blocks, METH_VARARGS, "Blocks of delayed messages, see packing.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_marks", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__marks(void)
{
    return PyModule_Create(&definition);
}
