// Package problem defines the common properties of all faults of objects: the class of the problem (Code), and its
// effect on the object (Severity). The types object.Problem and model.Problem add the field and the message.
//
// Owns: nothing; values are immutable. Reads: no other package of Navarch. Never: parses a code, a field or an object
// from a text.
package problem

import (
	"errors"
	"fmt"
	"strings"
)

// Code is the class of a problem, for programs. Messages may change, codes do not change. The codes follow
// field.ErrorType (https://pkg.go.dev/k8s.io/apimachinery/pkg/util/validation/field#ErrorType).
type Code string

// The codes.
const (
	Invalid      Code = "Invalid"      // the API does not allow the value or the object
	Required     Code = "Required"     // a required value is missing
	NotFound     Code = "NotFound"     // a referenced object or value does not exist
	Duplicate    Code = "Duplicate"    // another object or value has the same name, host, port or purpose
	NotSupported Code = "NotSupported" // valid, but this version does not act on it
	NoEffect     Code = "NoEffect"     // valid, but without effect as it is written
	Costly       Code = "Costly"       // valid and acted on, but expensive for every proxy
	NotAllowed   Code = "NotAllowed"   // valid, but not allowed in its place, or beyond the bounds of its tenant
	Unreadable   Code = "Unreadable"   // a file, a document or a stored value cannot be read
	Held         Code = "Held"         // the last good version, or a removed object, is kept for now
	Pending      Code = "Pending"      // takes effect after another event
	Refused      Code = "Refused"      // proxies refused the resulting configuration
	Internal     Code = "Internal"     // a fault of this program
)

// Severity is the effect of a problem.
type Severity string

// The severities.
const (
	Error   Severity = "error"   // the object, or the part that the field names, does not apply
	Warning Severity = "warning" // the object applies nevertheless
	Info    Severity = "info"    // the object applies, and may be correct; only navarchctl analyze reports this severity
)

// At is an error at a path of fields. Split joins the paths of nested errors.
type At struct {
	Field string // such as headers[x-user] or match[0]
	Err   error  // not nil
}

// Error returns "field: message".
func (a *At) Error() string { return a.Field + ": " + a.Err.Error() }

// Unwrap returns the inner error.
func (a *At) Unwrap() error { return a.Err }

// Atf returns an error at a field, with a message as by fmt.Errorf. format may contain %w.
func Atf(field, format string, args ...any) error {
	return &At{Field: field, Err: fmt.Errorf(format, args...)}
}

// Within returns err as an error at a field. It returns nil if err is nil.
func Within(field string, err error) error {
	if err == nil {
		return nil
	}
	return &At{Field: field, Err: err}
}

// Split separates the path of fields of an error from its message, and prefixes the path with field. err must not be
// nil. The path joins the fields of nested At errors, with a dot before each field that does not begin with a bracket.
// For an error that is not an At, path equals field, and message is the error's text. An error that wraps an At and
// adds a text counts as such an error.
func Split(field string, err error) (path, message string) {
	for {
		var at *At
		if !errors.As(err, &at) || at.Error() != err.Error() { // another error wraps it
			return field, err.Error()
		}
		switch {
		case field == "" || strings.HasPrefix(at.Field, "["):
			field += at.Field
		default:
			field += "." + at.Field
		}
		err = at.Err
	}
}
