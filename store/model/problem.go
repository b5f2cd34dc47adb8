package model

import (
	"cmp"
	"errors"
	"strings"

	"navarch.io/navarch/store/problem"
)

// Problem is one fault of a record, found by a package that uses the record. It is comparable. It is also an error, so
// that builders can return it; texts are never parsed back into a Problem.
type Problem struct {
	Key      Key    // the record with the fault
	Field    string // path as users write it; empty: the whole object
	Code     problem.Code
	Analyzer problem.Analyzer // empty without such a code
	Severity problem.Severity
	Message  string
}

// Error returns "Kind namespace/name: field: message".
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

// Fault returns a Problem for an error at a field of a record. The error's own path of fields (problem.At) is appended
// to field. An error that is a Problem already is returned unchanged.
func Fault(key Key, code problem.Code, field string, err error) error {
	if p := (Problem{}); errors.As(err, &p) {
		return p
	}
	path, message := problem.Split(field, err)
	return Problem{Key: key, Field: path, Code: code, Severity: problem.Error, Message: message}
}

// ProblemOf converts an error into a Problem. An error that is not a Problem becomes a fault of field spec of blame.
func ProblemOf(err error, blame Key) Problem {
	if p := (Problem{}); errors.As(err, &p) {
		return p
	}
	return Problem{Key: blame, Field: "spec", Code: problem.Invalid, Severity: problem.Error, Message: err.Error()}
}

// Place is a field of a record; the empty field stands for the whole object. It is comparable.
type Place struct {
	Key   Key
	Field string
}

// String returns "Kind namespace/name field".
func (p Place) String() string { return strings.TrimSuffix(p.Key.String()+" "+p.Field, " ") }
