package chart

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// rule is an alert of files/alerts.yaml.
type rule struct {
	Alert, Expr, For string
	Labels           map[string]string
	Annotations      map[string]string
}

// alerts returns the rules of files/alerts.yaml.
func alerts(t *testing.T) (all []rule) {
	t.Helper()
	text, err := os.ReadFile("files/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 20 {
		t.Errorf("%d alerts", len(all))
	}
	return all
}

// Each alert has a severity and a description, and a section of the runbook with its meaning, the checks and the
// remedy.
func TestAlertsHaveRunbooks(t *testing.T) {
	page, err := os.ReadFile("../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, part := range strings.Split(string(page), "\n## ")[1:] {
		title, text, _ := strings.Cut(part, "\n")
		sections[title] = text
	}
	seen := map[string]bool{}
	for _, r := range alerts(t) {
		if severity := r.Labels["severity"]; severity != "critical" && severity != "warning" || !strings.HasSuffix(r.Annotations["summary"], ".") || seen[r.Alert] {
			t.Errorf("%s: %v %v", r.Alert, r.Labels, r.Annotations)
		}
		seen[r.Alert] = true
		for _, word := range []string{"**What it means.**", "**What to look at.**", "**What to do.**"} {
			if !strings.Contains(sections[r.Alert], word) {
				t.Errorf("deploy/docs/alerts.md: section %s has no %s", r.Alert, word)
			}
		}
	}
	for title := range sections {
		if strings.HasPrefix(title, "Navarch") && !seen[title] {
			t.Errorf("deploy/docs/alerts.md: there is no alert %s", title)
		}
	}
}
