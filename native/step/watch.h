// The tensors that a stepper has copied: torch's version counters show a later write.
#pragma once

#include <Python.h>

#include <utility>

namespace unrolled {

class Watch {
 public:
  Watch() = default;
  ~Watch() {
    Py_XDECREF(tensors_);
    Py_XDECREF(seen_);
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // A list of tensors, and a list of one number, the sum of their counters. Both may change later.
  void look_at(PyObject* tensors, PyObject* seen) {
    Py_INCREF(tensors);
    Py_INCREF(seen);
    Py_XDECREF(std::exchange(tensors_, tensors));  // Py_XSETREF is not in the stable ABI
    Py_XDECREF(std::exchange(seen_, seen));
  }

  // Needs Python's lock.
  bool unchanged() const {
    if (!tensors_) return true;
    static PyObject* const version = PyUnicode_InternFromString("_version");
    long long sum = 0;
    for (Py_ssize_t i = 0, count = PyList_Size(tensors_); i < count; ++i) {
      PyObject* const counted = PyObject_GetAttr(PyList_GetItem(tensors_, i), version);
      if (!counted) {
        PyErr_Clear();
        return false;
      }
      sum += PyLong_AsLongLong(counted);
      Py_DECREF(counted);
    }
    return sum == PyLong_AsLongLong(PyList_GetItem(seen_, 0));
  }

 private:
  PyObject *tensors_ = nullptr, *seen_ = nullptr;
};

}  // namespace unrolled
