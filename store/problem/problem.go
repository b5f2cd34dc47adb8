// Package problem is the vocabulary for everything that is wrong with an object, wherever it is found: the class of the problem (Code), and
// how much of the object it affects (Severity). Field and message are added in object.Problem and model.Problem.
//
// Owns: nothing; values are immutable.  Reads: nothing of ours.  Never: reads a code, a field or an object out of a text.
package problem

import (
	"errors"
	"fmt"
	"strings"
)

// Code says what kind of problem it is, for programs: messages may be reworded, codes stay. They follow field.ErrorType
// (https://pkg.go.dev/k8s.io/apimachinery/pkg/util/validation/field#ErrorType).
type Code string

// The codes.
const (
	Invalid      Code = "Invalid"      // a value, or an object, is not what the API allows
	Required     Code = "Required"     // a value is not there, and has to be
	NotFound     Code = "NotFound"     // what it names is not there
	Duplicate    Code = "Duplicate"    // something else has this name, host or port, and wins
	NotSupported Code = "NotSupported" // it is valid, and this version does not act on it
	NoEffect     Code = "NoEffect"     // it is valid, and does nothing as it is written
	Costly       Code = "Costly"       // it is valid, is acted on, and takes much of every proxy
	NotAllowed   Code = "NotAllowed"   // it is valid, and not taken from where it is, or not beyond what its tenant may have
	Unreadable   Code = "Unreadable"   // a file, a document or a stored value cannot be read
	Held         Code = "Held"         // the last good version, or what is gone, is kept until somebody decides
	Pending      Code = "Pending"      // it takes effect once something else has happened
	Refused      Code = "Refused"      // proxies refused what was made of it
	Internal     Code = "Internal"     // a fault of this program
)

// Severity says how much is spoilt.
type Severity string

// The severities.
const (
	Error   Severity = "error"   // the object, or the part that the field names, does not apply
	Warning Severity = "warning" // it applies all the same
)

// At is an error at a path of fields; those of errors that wrap one another are joined.
type At struct {
	Field string // headers[x-user], match[0]
	Err   error
}

// Error is "field: message".
func (a *At) Error() string { return a.Field + ": " + a.Err.Error() }

// Unwrap gives the error within.
func (a *At) Unwrap() error { return a.Err }

// Atf is an error at a field; format may have %w.
func Atf(field, format string, args ...any) error {
	return &At{Field: field, Err: fmt.Errorf(format, args...)}
}

// Within puts an error below a field; nil stays nil.
func Within(field string, err error) error {
	if err == nil {
		return nil
	}
	return &At{Field: field, Err: err}
}

// Split takes the field path of an error, below `field`, from what is wrong there.
func Split(field string, err error) (path, message string) {
	for {
		var at *At
		if !errors.As(err, &at) || at.Error() != err.Error() { // somebody says more around it
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
