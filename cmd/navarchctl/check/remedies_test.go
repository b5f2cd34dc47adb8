package check

import (
	"regexp"
	"strings"
	"testing"

	"navarch.io/navarch/deploy/docs"
)

// Every check has a limit, a figure, and its section in the page of remedies, which has no others.
// Promise: checks.md#checks-and-their-remedies
func TestEveryCheckHasItsRemedy(t *testing.T) {
	page, err := docs.Pages.ReadFile("checks.md")
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[Name]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(string(page), -1) {
		anchors[Name(strings.ReplaceAll(strings.ToLower(heading[1]), " ", "-"))] = true
	}
	for name, limit := range Limits {
		if !anchors[name] || limit == "" {
			t.Errorf("%s: limit %q, section %v", name, limit, anchors[name])
		}
	}
	for name := range anchors {
		if Limits[name] == "" {
			t.Errorf("section %s is of no check", name)
		}
	}
	w, leaf := well(t)
	for _, r := range w.results(t, leaf, false) {
		if r.Limit == "" || r.Figure == "" || r.Remedy != "deploy/docs/checks.md#"+string(r.Name) || Limits[r.Name] == "" {
			t.Errorf("%+v", r)
		}
	}
}
