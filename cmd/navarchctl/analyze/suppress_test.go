package analyze

import (
	"testing"

	"golang.org/x/tools/txtar"
)

// Findings of an object are suppressed by its annotation, and by statements of the caller.
func TestSuppressions(t *testing.T) {
	find := func(annotation string) []Finding {
		text := "{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: web, namespace: shop, annotations: {galley.istio.io/analyze-suppress: '" +
			annotation + "'}}, spec: {host: wbe, trafficPolicy: {tls: {mode: SIMPLE}}}}\n"
		return Run(input(t, []txtar.File{{Name: "fires.yaml", Data: []byte(text)}}, "fires"), config)
	}
	for annotation, want := range map[string]int{"": 2, "IST0174": 1, " IST0174 , IST0128": 0, "*": 0, "IST0999": 2} {
		if got := find(annotation); len(got) != want {
			t.Errorf("annotation %q: %v, want %d", annotation, got, want)
		}
	}
	for text, want := range map[string]int{"IST0174=DestinationRule web.shop": 1, "IST*=DestinationRule *.shop": 0, "*=*": 0,
		"IST0174=DestinationRule web.other": 2,
		"IST0128=VirtualService web.shop":   2} {
		s, err := ParseSuppression(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := Suppressed(find(""), []Suppression{s}); len(got) != want {
			t.Errorf("%q: %v, want %d", text, got, want)
		}
	}
	for _, text := range []string{"", "IST0174", "IST0174=", "=DestinationRule web.shop", "IST0174=DestinationRule", "IST0174=[ web.shop",
		"IST0174= web.shop"} {
		if _, err := ParseSuppression(text); err == nil {
			t.Errorf("%q is taken for a suppression", text)
		}
	}
}
