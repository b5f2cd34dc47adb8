package validate

import (
	"navarch.io/navarch/store/admit/schema"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// Found contains the results of the validation of one object.
type Found struct {
	Errors   []Error  // at most schema.MaxViolations; empty: the object is valid
	Warnings []string // "field: message", or a message without a field
	whole    bool     // the author may see all objects, so messages may name them
}

// Error is one reason for which an object is refused.
type Error struct {
	Field   string // path in the object, such as spec.hosts[0]; empty: the object as a whole
	Code    problem.Code
	Message string
}

// err adds an error, up to schema.MaxViolations.
func (f *Found) err(field string, code problem.Code, message string) {
	if len(f.Errors) < schema.MaxViolations {
		f.Errors = append(f.Errors, Error{field, code, message})
	}
}

// warn adds a warning, up to schema.MaxViolations.
func (f *Found) warn(text string) {
	if len(f.Warnings) < schema.MaxViolations {
		f.Warnings = append(f.Warnings, text)
	}
}

// text returns "field: message", or the message if the field is empty.
func (e Error) text() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
}

// message returns the message of a problem in the form for the author of the object.
func (f *Found) message(p object.Problem) string {
	if f.whole {
		return p.Full()
	}
	return p.Message
}

// warning returns "field: message" for a problem. The code of the problem's analyzer and the text suffix follow.
func (f *Found) warning(p object.Problem, suffix string) string {
	text := f.message(p) + p.Analyzer.Suffix() + suffix
	if p.Field == "" {
		return text
	}
	return p.Field + ": " + text
}
