/* Compiled form of `walking.lay_out`, and of the conditions of `filters.conditions`, which describes their program.
   Long bodies are walked without the GIL. */

#define _GNU_SOURCE /* memmem */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

#include "json_path.h"
#include "walk.h"

#define MIN_RECORD_BYTES 7
#define LONG_BODY_BYTES 4096

static Py_ssize_t lay_out_all(const unsigned char *body, Py_ssize_t size, Py_ssize_t position, Py_ssize_t count,
                              Layout *layouts)
{
    Cursor cursor = {body + position, body + size, 0};
    for (Py_ssize_t place = 0; place < count; place++) {
        if (lay_out_record(&cursor, body, &layouts[place]) < 0)
            return -1;
    }
    return 0;
}

static PyObject *lay_out(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer body;
    Py_ssize_t position, count;
    if (!PyArg_ParseTuple(arguments, "y*nn", &body, &position, &count))
        return NULL;
    PyObject *packed = NULL;
    if (position < 0 || position > body.len || count > (body.len - position) / MIN_RECORD_BYTES) {
        PyErr_SetString(PyExc_ValueError, "more records than there are bytes for");
    } else {
        packed = PyBytes_FromStringAndSize(NULL, (count > 0 ? count : 0) * (Py_ssize_t)sizeof(Layout));
    }
    if (packed != NULL) {
        Layout *layouts = (Layout *)PyBytes_AS_STRING(packed);
        Py_ssize_t result;
        if (body.len - position >= LONG_BODY_BYTES) {
            Py_BEGIN_ALLOW_THREADS
            result = lay_out_all(body.buf, body.len, position, count, layouts);
            Py_END_ALLOW_THREADS
        } else {
            result = lay_out_all(body.buf, body.len, position, count, layouts);
        }
        if (result < 0) {
            Py_CLEAR(packed);
            PyErr_SetString(PyExc_ValueError, "no valid record");
        }
    }
    PyBuffer_Release(&body);
    return packed;
}

/* --- conditions */

#define MAX_STACK 64
#define FIRST_MS (-62135596800000LL)
#define LAST_MS 253402300799999LL

enum { FALSE_RESULT, TRUE_RESULT, FAILED_RESULT, UNDECIDED_RESULT };
enum { CONSTANT, AND, OR, NOT, TEXT, NUMBER, HAS_HEADER, JSON };
enum { KEY, VALUE, HEADER, SIZE, PARTITION, OFFSET, TIMESTAMP };
enum { JSON_EXISTS, JSON_TEXT, JSON_NUMBER, JSON_BOOL };
enum { EQUAL, NOT_EQUAL, LESS, AT_MOST, GREATER, AT_LEAST, STARTS_WITH, ENDS_WITH, CONTAINS };

typedef struct {
    const unsigned char *body;
    const Layout *layout;
    int64_t partition, offset, timestamp;
} Record;

typedef struct {
    const unsigned char *at;
    int64_t size;
} Span;

/* Find the last header of a name; the size is -1 without one. A null value is empty. */
static Span find_header(const Record *record, Span wanted)
{
    Span found = {NULL, -1};
    Cursor cursor = {record->body + record->layout->headers_start, record->body + record->layout->end, 0};
    for (int64_t place = 0; place < record->layout->header_count; place++) {
        const unsigned char *name, *value;
        int64_t name_size, value_size;
        read_header(&cursor, &name, &name_size, &value, &value_size);
        if (name_size == wanted.size && memcmp(name, wanted.at, (size_t)name_size) == 0) {
            found.at = value;
            found.size = value_size < 0 ? 0 : value_size;
        }
    }
    return found;
}

static int64_t content_size(const Record *record)
{
    const Layout *layout = record->layout;
    int64_t size = (layout->key_length > 0 ? layout->key_length : 0) + (layout->value_length > 0 ? layout->value_length : 0);
    Cursor cursor = {record->body + layout->headers_start, record->body + layout->end, 0};
    for (int64_t place = 0; place < layout->header_count; place++) {
        const unsigned char *name, *value;
        int64_t name_size, value_size;
        read_header(&cursor, &name, &name_size, &value, &value_size);
        size += name_size + (value_size > 0 ? value_size : 0);
    }
    return size;
}

static int compare_text(Span text, int relation, Span literal)
{
    switch (relation) {
    case EQUAL:
    case NOT_EQUAL: {
        int is_equal = text.size == literal.size && memcmp(text.at, literal.at, (size_t)text.size) == 0;
        return is_equal == (relation == EQUAL);
    }
    case STARTS_WITH:
        return text.size >= literal.size && memcmp(text.at, literal.at, (size_t)literal.size) == 0;
    case ENDS_WITH:
        return text.size >= literal.size &&
               memcmp(text.at + (text.size - literal.size), literal.at, (size_t)literal.size) == 0;
    default:
        return literal.size == 0 ||
               (text.size >= literal.size && memmem(text.at, (size_t)text.size, literal.at, (size_t)literal.size) != NULL);
    }
}

static int compare_number(int64_t number, int relation, int64_t literal)
{
    switch (relation) {
    case EQUAL:
        return number == literal;
    case NOT_EQUAL:
        return number != literal;
    case LESS:
        return number < literal;
    case AT_MOST:
        return number <= literal;
    case GREATER:
        return number > literal;
    default:
        return number >= literal;
    }
}

static int judge_text(const Record *record, int subject, Span name, int relation, Span literal)
{
    const Layout *layout = record->layout;
    Span text;
    if (subject == HEADER) {
        text = find_header(record, name);
        if (text.size < 0)
            return FAILED_RESULT;
    } else {
        int64_t size = subject == KEY ? layout->key_length : layout->value_length;
        text.at = record->body + (subject == KEY ? layout->key_start : layout->value_start);
        text.size = size > 0 ? size : 0;
    }
    return compare_text(text, relation, literal) ? TRUE_RESULT : FALSE_RESULT;
}

static int judge_number(const Record *record, int subject, int relation, int64_t literal)
{
    int64_t number = record->offset;
    if (subject == SIZE)
        number = content_size(record);
    else if (subject == PARTITION)
        number = record->partition;
    else if (subject == TIMESTAMP) {
        number = record->timestamp;
        if (number < FIRST_MS || number > LAST_MS)
            return FAILED_RESULT;
    }
    return compare_number(number, relation, literal) ? TRUE_RESULT : FALSE_RESULT;
}

static Span take_text(const unsigned char **at)
{
    Span text;
    uint32_t size = 0;
    for (int place = 0; place < 4; place++)
        size = size << 8 | *(*at)++;
    text.at = *at;
    text.size = (int64_t)size;
    *at += size;
    return text;
}

static int64_t take_number(const unsigned char **at)
{
    uint64_t number = 0;
    for (int place = 0; place < 8; place++)
        number = number << 8 | *(*at)++;
    return (int64_t)number;
}

/* Find the field at the path of an instruction: 1, 0 if only the last name is missing, -1 if an earlier one is, -2 to
   give up. */
static int find_json(const Record *record, const unsigned char **at, Json *value)
{
    int count = *(*at)++, found = 1;
    value->at = record->body + record->layout->value_start;
    value->end = value->at + record->layout->value_length;
    for (int place = 0; place < count; place++) {
        Span name = take_text(at);
        if (found < 1)
            found = found == 0 ? -1 : found;
        else if ((found = json_find_field(*value, name.at, name.size, value)) < 0)
            found = -2;
    }
    return found;
}

static int judge_json(const Record *record, const unsigned char **at)
{
    int kind = *(*at)++, relation = *(*at)++, order;
    Json value;
    int found = find_json(record, at, &value), is_missing = found < 1;
    Span text = {NULL, 0}, literal = {NULL, 0};
    int64_t number = 0;
    if (kind == JSON_TEXT)
        literal = take_text(at);
    else if (kind != JSON_EXISTS)
        number = take_number(at);
    if (found == -2)
        return UNDECIDED_RESULT;
    if (is_missing)
        return found == 0 && kind == JSON_EXISTS ? FALSE_RESULT : FAILED_RESULT;
    if (kind == JSON_EXISTS)
        return TRUE_RESULT;
    if (kind == JSON_TEXT) {
        if (json_text(value, &text.at, &text.size) < 0)
            return UNDECIDED_RESULT;
        return compare_text(text, relation, literal) ? TRUE_RESULT : FALSE_RESULT;
    }
    if (kind == JSON_BOOL) {
        if (*value.at != 't' && *value.at != 'f')
            return UNDECIDED_RESULT;
        return compare_number(*value.at == 't', relation, number) ? TRUE_RESULT : FALSE_RESULT;
    }
    if (json_compare_number(value, number, &order) < 0)
        return UNDECIDED_RESULT;
    return compare_number(order, relation, 0) ? TRUE_RESULT : FALSE_RESULT;
}

/* Run a program, which `check_program` has accepted. A record whose document or field is not a simple one is left to
   CEL as a whole. */
static int judge(const unsigned char *at, const unsigned char *end, const Record *record, int has_json)
{
    int stack[MAX_STACK], depth = 0;
    const Layout *layout = record->layout;
    if (has_json &&
        (layout->value_length < 1 || json_check_object(record->body + layout->value_start, layout->value_length) < 0))
        return UNDECIDED_RESULT;
    while (at < end) {
        int code = *at++;
        if (code == NOT) {
            if (stack[depth - 1] != FAILED_RESULT)
                stack[depth - 1] = !stack[depth - 1];
        } else if (code == AND || code == OR) {
            int right = stack[--depth], left = stack[depth - 1], decided = code == AND ? FALSE_RESULT : TRUE_RESULT;
            if (left == decided || right == decided)
                stack[depth - 1] = decided;
            else
                stack[depth - 1] = left > right ? left : right;
        } else if (code == CONSTANT) {
            stack[depth++] = *at++;
        } else if (code == TEXT) {
            int subject = *at++, relation = *at++;
            Span name = take_text(&at), literal = take_text(&at);
            stack[depth++] = judge_text(record, subject, name, relation, literal);
        } else if (code == NUMBER) {
            int subject = *at++, relation = *at++;
            stack[depth++] = judge_number(record, subject, relation, take_number(&at));
        } else if (code == JSON) {
            int result = judge_json(record, &at);
            if (result == UNDECIDED_RESULT)
                return result;
            stack[depth++] = result;
        } else {
            stack[depth++] = find_header(record, take_text(&at)).size >= 0 ? TRUE_RESULT : FALSE_RESULT;
        }
    }
    return stack[0];
}

static int skip_text(const unsigned char **at, const unsigned char *end)
{
    if (end - *at < 4)
        return -1;
    const unsigned char *start = *at;
    uint32_t size = (uint32_t)start[0] << 24 | (uint32_t)start[1] << 16 | (uint32_t)start[2] << 8 | start[3];
    if ((int64_t)size > end - start - 4)
        return -1;
    *at = start + 4 + size;
    return 0;
}

static int skip_json(const unsigned char **at, const unsigned char *end)
{
    if (end - *at < 3 || (*at)[0] > JSON_BOOL || (*at)[1] > CONTAINS)
        return -1;
    int kind = (*at)[0], count = (*at)[2];
    *at += 3;
    for (int place = 0; place < count + (kind == JSON_TEXT); place++) {
        if (skip_text(at, end) < 0)
            return -1;
    }
    if (kind == JSON_TEXT || kind == JSON_EXISTS)
        return 0;
    if (end - *at < 8)
        return -1;
    *at += 8;
    return 0;
}

/* Return 0, or 1 if the program reads JSON, if it is complete, needs no more than the stack and leaves one result;
   else -1. */
static int check_program(const unsigned char *at, const unsigned char *end)
{
    int depth = 0, has_json = 0;
    while (at < end) {
        int code = *at++;
        if (code == NOT) {
            if (depth < 1)
                return -1;
            continue;
        }
        if (code == AND || code == OR) {
            if (--depth < 1)
                return -1;
            continue;
        }
        if (code == CONSTANT) {
            if (end - at < 1 || *at++ > 1)
                return -1;
        } else if (code == TEXT || code == NUMBER) {
            if (end - at < 2 || at[0] > TIMESTAMP || at[1] > CONTAINS)
                return -1;
            at += 2;
            if (code == NUMBER ? end - at < 8 : skip_text(&at, end) < 0 || skip_text(&at, end) < 0)
                return -1;
            at += code == NUMBER ? 8 : 0;
        } else if (code == JSON) {
            has_json = 1;
            if (skip_json(&at, end) < 0)
                return -1;
        } else if (code != HAS_HEADER || skip_text(&at, end) < 0) {
            return -1;
        }
        if (++depth > MAX_STACK)
            return -1;
    }
    return depth == 1 ? has_json : -1;
}

typedef struct {
    int64_t *found; /* start, end and offset delta of each match */
    Py_ssize_t count, capacity, failed;
    Layout *undecided;
    Py_ssize_t undecided_count, undecided_capacity;
} Selection;

static int add_undecided(Selection *selection, const Layout *layout)
{
    if (selection->undecided_count == selection->undecided_capacity) {
        Py_ssize_t capacity = selection->undecided_capacity ? 2 * selection->undecided_capacity : 16;
        Layout *grown = PyMem_RawRealloc(selection->undecided, (size_t)capacity * sizeof(Layout));
        if (grown == NULL)
            return -1;
        selection->undecided = grown;
        selection->undecided_capacity = capacity;
    }
    selection->undecided[selection->undecided_count++] = *layout;
    return 0;
}

static int add_match(Selection *selection, const Layout *layout)
{
    if (selection->count == selection->capacity) {
        Py_ssize_t capacity = selection->capacity ? 2 * selection->capacity : 64;
        int64_t *grown = PyMem_RawRealloc(selection->found, (size_t)capacity * 3 * sizeof(int64_t));
        if (grown == NULL)
            return -1;
        selection->found = grown;
        selection->capacity = capacity;
    }
    int64_t *match = selection->found + 3 * selection->count++;
    match[0] = layout->start;
    match[1] = layout->end;
    match[2] = layout->offset_delta;
    return 0;
}

/* Return 0, -1 for an invalid body, or -2 without memory. */
static int select_all(const Py_buffer *body, Py_ssize_t count, const Py_buffer *program, int has_json,
                      int64_t base_offset, int64_t time, int has_append_time, int64_t partition, Selection *selection)
{
    const unsigned char *start = body->buf, *code = program->buf;
    Cursor cursor = {start, start + body->len, 0};
    for (Py_ssize_t place = 0; place < count; place++) {
        Layout layout;
        if (lay_out_record(&cursor, start, &layout) < 0)
            return -1;
        uint64_t delta = has_append_time ? 0 : (uint64_t)layout.timestamp_delta;
        Record record = {start, &layout, partition, (int64_t)((uint64_t)base_offset + (uint64_t)layout.offset_delta),
                         (int64_t)((uint64_t)time + delta)};
        int result = judge(code, code + program->len, &record, has_json);
        if (result == TRUE_RESULT && add_match(selection, &layout) < 0)
            return -2;
        if (result == UNDECIDED_RESULT && add_undecided(selection, &layout) < 0)
            return -2;
        selection->failed += result == FAILED_RESULT;
    }
    return cursor.at == cursor.end ? 0 : -1;
}

static PyObject *select_records(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer body, program;
    Py_ssize_t count;
    long long base_offset, time, partition;
    int has_append_time, result = -1;
    if (!PyArg_ParseTuple(arguments, "y*ny*LLpL", &body, &count, &program, &base_offset, &time, &has_append_time,
                          &partition))
        return NULL;
    Selection selection = {NULL, 0, 0, 0, NULL, 0, 0};
    PyObject *selected = NULL;
    int has_json = check_program(program.buf, (const unsigned char *)program.buf + program.len);
    if (has_json < 0) {
        PyErr_SetString(PyExc_ValueError, "the program is not valid");
    } else {
        if (body.len >= LONG_BODY_BYTES) {
            Py_BEGIN_ALLOW_THREADS
            result = select_all(&body, count, &program, has_json, base_offset, time, has_append_time, partition,
                                &selection);
            Py_END_ALLOW_THREADS
        } else {
            result = select_all(&body, count, &program, has_json, base_offset, time, has_append_time, partition,
                                &selection);
        }
        if (result == 0)
            selected = Py_BuildValue("(y#ny#)", selection.found == NULL ? "" : (const char *)selection.found,
                                     selection.count * 3 * (Py_ssize_t)sizeof(int64_t), selection.failed,
                                     selection.undecided == NULL ? "" : (const char *)selection.undecided,
                                     selection.undecided_count * (Py_ssize_t)sizeof(Layout));
        else if (result == -2)
            PyErr_NoMemory();
        else
            PyErr_SetString(PyExc_ValueError, "no valid record");
    }
    PyMem_RawFree(selection.found);
    PyMem_RawFree(selection.undecided);
    PyBuffer_Release(&program);
    PyBuffer_Release(&body);
    return selected;
}

static PyMethodDef methods[] = {
    {"lay_out", lay_out, METH_VARARGS, "lay_out(body, position, record_count): packed layouts of the next records."},
    {"choose", select_records, METH_VARARGS,
     "choose(body, record_count, program, base_offset, time, has_append_time, partition): matches, failures, and the "
     "layouts of records that need CEL."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_walker",
    .m_doc = "Layouts of the records of a batch.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__walker(void)
{
    return PyModuleDef_Init(&module_definition);
}
