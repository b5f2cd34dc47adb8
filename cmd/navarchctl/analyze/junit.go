package analyze

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"

	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/store/problem"
)

// The parts of JUnit's XML that the usual tools read.
type (
	junitSuites struct {
		XMLName  xml.Name   `xml:"testsuites"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Suite    junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		File    string        `xml:"file,attr,omitempty"`
		Line    int           `xml:"line,attr,omitempty"`
		Failure *junitFailure `xml:"failure"`
		Out     string        `xml:"system-out,omitempty"`
	}
	junitFailure struct {
		Type    string `xml:"type,attr"`
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes findings as test cases of one JUnit suite. Findings at or above the threshold become failures;
// less severe findings become passed cases. Without findings it writes one passed case. Errors are those of w.
func WriteJUnit(w io.Writer, all []Finding, threshold problem.Severity) error {
	suite := junitSuite{Name: "navarchctl analyze"}
	for _, f := range all {
		name := f.Code
		if f.Field != "" {
			name += " " + f.Field
		}
		c := junitCase{Class: show.Printable(cmp.Or(f.Object, "files")), Name: show.Printable(name), File: show.Printable(f.File), Line: f.Line}
		if AtLeast(f.Severity, threshold) {
			suite.Failures++
			c.Failure = &junitFailure{f.Code, show.Printable(f.Message), f.String()}
		} else {
			c.Out = f.String()
		}
		suite.Cases = append(suite.Cases, c)
	}
	if len(suite.Cases) == 0 {
		suite.Cases = []junitCase{{Class: "files", Name: "no findings"}}
	}
	suite.Tests = len(suite.Cases)
	text, err := xml.MarshalIndent(junitSuites{Tests: suite.Tests, Failures: suite.Failures, Suite: suite}, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, text)
	return err
}
