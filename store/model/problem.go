package model

import (
	"cmp"
	"errors"
	"strings"

	"navarch.io/navarch/store/problem"
)

// Problem is one fault of a record, found by a package that uses the record. It is comparable. It is also an error, so
// that builders can return it.
type Problem struct {
	Key      Key              // the record with the fault
	Field    string           // path in the object as users write it; empty: the whole object
	Code     problem.Code     // kind of the fault
	Analyzer problem.Analyzer // the corresponding analyzer code of istioctl; empty: there is no such code
	Severity problem.Severity // effect on the object
	Message  string           // without the object and the field; names no objects that the record's namespace may not see
	// Whole is the message with the names of all objects, for readers who see everything. If it is empty, Message has
	// all names. The function Messages returns both texts.
	Whole string
}

// Full returns the message for readers who see all objects.
func (p Problem) Full() string { return cmp.Or(p.Whole, p.Message) }

// Error returns "Kind namespace/name: field: message", without an empty field, for readers who see all objects.
func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Key.String() + ": ")
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Full())
	return b.String()
}

// Compare orders problems by record, field, code and message, then by severity, analyzer and Whole. It returns 0 only
// for equal problems.
func (p Problem) Compare(o Problem) int {
	return cmp.Or(p.Key.Compare(o.Key), cmp.Compare(p.Field, o.Field), cmp.Compare(p.Code, o.Code), cmp.Compare(p.Message, o.Message),
		cmp.Compare(p.Severity, o.Severity), cmp.Compare(p.Analyzer, o.Analyzer), cmp.Compare(p.Whole, o.Whole))
}

// Fault returns a Problem of severity Error for an error at a field of a record, without an Analyzer. The error's own
// path of fields (problem.At) is appended to field. If err is or wraps a Problem, that Problem is returned unchanged.
// err must not be nil.
func Fault(key Key, code problem.Code, field string, err error) error {
	if p := (Problem{}); errors.As(err, &p) {
		return p
	}
	path, message := problem.Split(field, err)
	return Problem{Key: key, Field: path, Code: code, Severity: problem.Error, Message: message}
}

// ProblemOf returns the Problem that err is or wraps. For any other error it returns a Problem of the record with the
// key blame, with the Field "spec", the Code Invalid and the Severity Error. err must not be nil.
func ProblemOf(err error, blame Key) Problem {
	if p := (Problem{}); errors.As(err, &p) {
		return p
	}
	return Problem{Key: blame, Field: "spec", Code: problem.Invalid, Severity: problem.Error, Message: err.Error()}
}

// Place is a field of a record. It is comparable.
type Place struct {
	Key   Key
	Field string // path in the object; empty: the whole object
}

// String returns "Kind namespace/name field", without the space for an empty field.
func (p Place) String() string { return strings.TrimSuffix(p.Key.String()+" "+p.Field, " ") }
