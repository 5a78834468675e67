/* Compiled form of `marking`: the delays, cancellations and origins in the headers of a batch, and the bits of settled
   messages. Long bodies are read without the GIL. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
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

static PyMethodDef methods[] = {
    {"find_marks", find_marks, METH_VARARGS, "Packed marks of the records of a body, see marking.py."},
    {"clear_bits", clear_bits, METH_VARARGS, "Clear the bits of ids; returns how many were set."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_marks", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__marks(void)
{
    return PyModule_Create(&definition);
}
