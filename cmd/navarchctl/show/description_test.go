package show

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"navarch.io/navarch/push/describe"
	"navarch.io/navarch/push/inspect"
)

// forger is a name that tries to end its line, to colour it and to turn its direction.
const forger = "x\nproblems: none\x1b[2K\u202e\tright"

// Every text of a description may be of an object that somebody else wrote. None of them begins a line, or reaches the
// terminal as a control character or a mark of direction.
func TestDescriptionsCannotBeForged(t *testing.T) {
	print := func(text string) string {
		facts := []describe.Fact{{Subject: text, Text: text, By: []string{text, text}}, {Subject: "s", Text: "t"}}
		d := &Described{Subject: text, Part: describe.Part{
			Objects: []describe.Object{{Object: text, Facts: facts}},
			Groups: []describe.Group{{Side: describe.Inbound, Proxies: []string{text}, Total: 3,
				Sections: []describe.Section{{Name: text, Facts: facts}}}},
			More: []string{text}},
			Problems: []inspect.Problem{{Object: text, Field: text, Message: text, Severity: "error"}},
			Changes:  []Touched{{Lane: text, Revision: 7, Since: time.Unix(0, 0), Objects: []string{text}}},
		}
		var b strings.Builder
		if err := Description(&b, d, false); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	plain, forged := print("plain"), print(forger)
	if strings.Count(plain, "\n") != strings.Count(forged, "\n") || strings.Contains(forged, "\nproblems: none") {
		t.Errorf("lines are forged:\n%s\nwant the lines of\n%s", forged, plain)
	}
	if i := strings.IndexFunc(forged, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("%q is printed", forged[i:i+4])
	}
	for _, want := range []string{"inbound of plain and 2 more", "(default)", "plain plain   plain plain"} {
		if !strings.Contains(strings.Join(strings.Fields(plain), " "), strings.Join(strings.Fields(want), " ")) {
			t.Errorf("%q is not in\n%s", want, plain)
		}
	}
}
