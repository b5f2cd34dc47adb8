package model

import (
	"cmp"
	"errors"
	"strings"

	"navarch.io/navarch/store/problem"
)

// Problem is one thing that is wrong with what a record says, found by whoever makes something of it. Comparable, and an error, so that
// builders may return it; it is never read back out of a text.
type Problem struct {
	Key      Key    // the record that is at fault
	Field    string // path as users write it; empty: the whole object
	Code     problem.Code
	Analyzer problem.Analyzer // Istio's code for it; empty: it has none
	Severity problem.Severity
	Message  string
}

// Error is "Kind namespace/name: field: message".
func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Key.String() + ": ")
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// Compare orders problems by record, field, code and message.
func (p Problem) Compare(o Problem) int {
	return cmp.Or(p.Key.Compare(o.Key), cmp.Compare(p.Field, o.Field), cmp.Compare(p.Code, o.Code), cmp.Compare(p.Message, o.Message),
		cmp.Compare(p.Severity, o.Severity), cmp.Compare(p.Analyzer, o.Analyzer))
}

// Fault is an error at a field of a record; the path of fields that the error has (problem.At) goes on from there. What is a Problem
// already stays the problem that it is.
func Fault(key Key, code problem.Code, field string, err error) error {
	if p := (Problem{}); errors.As(err, &p) {
		return p
	}
	path, message := problem.Split(field, err)
	return Problem{Key: key, Field: path, Code: code, Severity: problem.Error, Message: message}
}

// ProblemOf is the problem that an error is. One that names no record is the fault of `blame`, with its field spec.
func ProblemOf(err error, blame Key) Problem {
	if p := (Problem{}); errors.As(err, &p) {
		return p
	}
	return Problem{Key: blame, Field: "spec", Code: problem.Invalid, Severity: problem.Error, Message: err.Error()}
}

// Place is a field of a record; the empty field: the whole object. Comparable.
type Place struct {
	Key   Key
	Field string
}

// String is "Kind namespace/name field".
func (p Place) String() string { return strings.TrimSuffix(p.Key.String()+" "+p.Field, " ") }
