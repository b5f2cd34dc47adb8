package mesh

import (
	"strings"
	"testing"
)

func TestRefusedSettings(t *testing.T) {
	for field, change := range map[string]func(*Settings){
		"namespace":        func(s *Settings) { s.Namespaces = 0 },
		"services":         func(s *Settings) { s.Services = 3; s.Namespaces = 4 },
		"pods":             func(s *Settings) { s.Pods = 0 },
		"zipf":             func(s *Settings) { s.Zipf = -1 },
		"sidecarSees":      func(s *Settings) { s.SidecarSees = s.Namespaces },
		"destinationRules": func(s *Settings) { s.DestinationRules = s.Services + 1 },
		"localityRules":    func(s *Settings) { s.LocalityRules = s.DestinationRules + 1 },
		"form":             func(s *Settings) { s.Form = "xml" },
		"zones":            func(s *Settings) { s.Zones = -1 },
	} {
		s, err := preset("tiny")
		if err != nil {
			t.Fatal(err)
		}
		change(&s)
		if _, err := New(s); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := preset("nonesuch"); err == nil || !strings.Contains(err.Error(), "world-a") {
		t.Errorf("unknown preset: %v", err)
	}
	if _, err := parse([]byte("name: x\nservices: 1\nnamespaces: 1\npods: 1\nsevrices: 3\n")); err == nil {
		t.Error("a misspelt field was accepted")
	}
}

func TestScaled(t *testing.T) {
	b, _ := preset("world-b")
	for _, f := range []float64{.001, .02, .5, 2} {
		s := b.Scaled(f)
		if _, err := New(s); err != nil {
			t.Errorf("scaled by %g: %v", f, err)
		}
		if f == .5 && (s.Services != 500 || s.Namespaces != 20 || s.VirtualServices != 50 || s.LocalityRules != 10) {
			t.Errorf("half: %+v", s)
		}
	}
	if sum(world(t, "world-b")) != sum(world(t, "world-b", func(s *Settings) { *s = s.Scaled(1) })) {
		t.Error("scaled by 1 is another world")
	}
}
