package inject

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/Masterminds/sprig/v3"
)

// templated has one template, the default one.
func templated(t *testing.T, text string) *Settings {
	t.Helper()
	return settingsOf(t, "policy: enabled\ntemplates:\n  sidecar: |\n    "+strings.ReplaceAll(text, "\n", "\n    ")+"\n", "global: {hub: h, tag: 1.5}")
}

// A template that fails or does not end refuses the Pod. The error names the template's author and, if known, the line.
func TestTemplatesAreBounded(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"fails", "metadata:\n  labels:\n    a: {{ fail \"because\" }}", "templates.sidecar: template: sidecar:3:10: executing \"sidecar\" at <fail \"because\">: error calling fail: because"},
		{"field", "a: {{ .Nothing }}", "sidecar:1:6: executing"},
		{"range", "{{ range 100000000 }}{{ end }}", errSteps.Error()},
		{"nested", "{{ range until 1000 }}{{ range until 1000 }}{{ with . }}{{ end }}{{ end }}{{ end }}", errSteps.Error()},
		{"else", "{{ range list }}{{ else }}{{ range 100000000 }}{{ end }}{{ end }}", errSteps.Error()},
		{"in if", "{{ if true }}{{ range 100000000 }}{{ end }}{{ end }}", errSteps.Error()},
		{"recursion", "{{ define \"a\" }}{{ template \"a\" . }}{{ template \"a\" . }}{{ end }}{{ template \"a\" . }}", "exceeded maximum template depth"},
		{"fork", "{{ define \"a\" }}{{ if gt . 0 }}{{ template \"a\" (sub . 1) }}{{ template \"a\" (sub . 1) }}{{ end }}{{ end }}{{ template \"a\" 40 }}", errSteps.Error()},
		{"output", "{{ $x := repeat 1000 \"0123456789\" }}{{ range 1000 }}{{ $x }}{{ end }}", errOutput.Error()},
		{"doubling", "{{ $x := \"xx\" }}{{ range 60 }}{{ $x = printf \"%s%s\" $x $x }}{{ end }}", "its result is too large"},
		{"doubling print", "{{ $x := \"xx\" }}{{ range 60 }}{{ $x = print $x $x }}{{ end }}", "its result is too large"},
		{"doubling lists", "{{ $x := list 1 2 }}{{ range 60 }}{{ $x = concat $x $x }}{{ end }}", "its result is too large"},
		{"doubling join", "{{ $x := \"xx\" }}{{ range 60 }}{{ $x = list $x $x | join \"-\" }}{{ end }}", "its result is too large"},
		{"replace", "{{ $x := repeat 90000 \"0\" }}{{ replace \"0\" $x $x }}", "its result is too large"},
		{"regexReplaceAll", "{{ $x := repeat 90000 \"0\" }}{{ regexReplaceAll \"0\" $x $x }}", "its result is too large"},
		{"regexReplaceAll of the whole", "{{ $x := repeat 90000 \"0\" }}{{ regexReplaceAll \".*\" $x (repeat 9000 \"$0\") }}", "its result is too large"},
		{"regexReplaceAllLiteral", "{{ $x := repeat 90000 \"0\" }}{{ regexReplaceAllLiteral \"0\" $x $x }}", "its result is too large"},
		{"wrapWith", "{{ $x := repeat 90000 \"0\" }}{{ wrapWith 1 $x $x }}", "its result is too large"},
		{"join", "{{ $x := repeat 90000 \"0\" }}{{ join $x (until 90000) }}", "its result is too large"},
		{"until", "{{ until 1000000000 }}", "its result is too large"},
		{"until below", "{{ until -1000000000 }}", "its result is too large"},
		{"untilStep", "{{ untilStep 0 1000000000 1 }}", "its result is too large"},
		{"seq", "{{ seq 1 1000000000 }}", "its result is too large"},
		{"repeat", "{{ repeat 1000000000 \"x\" }}", "its result is too large"},
		{"repeat much", "{{ $x := repeat 1000 \"0123456789\" }}{{ repeat 1000 $x }}", "its result is too large"},
		{"indent", "{{ indent 1000000000 \"a\\nb\" }}", "its result is too large"},
		{"nindent", "{{ nindent 1000000000 \"a\" }}", "its result is too large"},
		{"panic", "{{ repeat -1 \"x\" }}", "templates.sidecar"},
		{"JSON", "{{ fromJSON \"{\" }}", "\"{\" is not JSON"},
		{"no YAML", "metadata:\n  labels: {a: b}\n bad: [", "its output is not YAML: error converting YAML to JSON: yaml: line"},
		{"quotes the line", "metadata:\n  labels: {a: b}\n  - c", "(\"labels: {a: b}\", \"- c\")"},
		{"no Pod", "spec: {containers: 5}", "its output is not a part of a Pod"},
		{"not mergeable", "spec: {containers: [{name: a, $patch: unheardOf}]}", "templates.sidecar: what it gives cannot be merged onto the Pod"},
		{"wrong type", "spec: {hostPID: \"text\"}", "templates and Pod together are no Pod"},
		{"nameless", "spec: {containers: [{image: x}]}", "without a name"},
		{"scalar", "just text", "its output is not YAML"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := templated(t, c.text).Inject(t.Context(), Request{Pod: podOf(t, simplePod), Namespace: "shop"})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want %q", err, c.want)
			}
			if !strings.Contains(err.Error(), source) && c.name != "wrong type" {
				t.Errorf("%v does not name the ConfigMap", err)
			}
		})
	}
}

// A text that would be too large is refused before it is built.
func TestLargeTextsAreNotBuilt(t *testing.T) {
	built, all := false, sprig.TxtFuncMap()
	all["join"] = func(string, any) string { built = true; return "" }
	all["wrapWith"] = func(int, string, string) string { built = true; return "" }
	boundCounts(all)
	join, wrap := all["join"].(func(string, any) (string, error)), all["wrapWith"].(func(int, string, string) (string, error))
	text := strings.Repeat("x", 9000)
	large, deep := slices.Repeat([]any{text}, 1000), any(text)
	for range 60 {
		deep = []any{deep, map[string]any{"again": deep}}
	}
	for what, c := range map[string]struct {
		call  func() (string, error)
		large bool
	}{
		"a list of one text":      {func() (string, error) { return join("", large) }, true},
		"as strings":              {func() (string, error) { return join("", slices.Repeat([]string{text}, 1000)) }, true},
		"lists in a list":         {func() (string, error) { return join("", []any{large}) }, true},
		"lists doubled 60 times":  {func() (string, error) { return join("", deep) }, true},
		"a few texts":             {func() (string, error) { return join(",", large[:100]) }, false},
		"many numbers":            {func() (string, error) { return join(",", make([]int, maxElements)) }, false},
		"no list":                 {func() (string, error) { return join(",", text) }, false},
		"nothing":                 {func() (string, error) { return join(",", nil) }, false},
		"nothing in a list":       {func() (string, error) { return join(",", []any{nil, "a"}) }, false},
		"a text in lines":         {func() (string, error) { return wrap(1, "", strings.Repeat(text, 60)) }, true},
		"a small text in lines":   {func() (string, error) { return wrap(1, "", text) }, false},
		"a text in longer lines":  {func() (string, error) { return wrap(80, "", strings.Repeat(text, 60)) }, false},
		"a large text with words": {func() (string, error) { return wrap(80, text, strings.Repeat(text, 60)) }, true},
	} {
		built = false
		if _, err := c.call(); errors.Is(err, errLarge) != c.large || built == c.large {
			t.Errorf("%s: %v, built: %v", what, err, built)
		}
	}
}

// An unreadable template affects only Pods that select it. An unreadable default template affects the whole ConfigMap:
// the last good one stays in effect.
func TestUnreadableTemplates(t *testing.T) {
	text := "policy: enabled\ntemplates:\n  sidecar: 'metadata: {labels: {a: b}}'\n  other: '{{ unheardOf }}'\n  secret: '{{ genPrivateKey \"rsa\" }}'\n  time: '{{ now }}'\n"
	c, err := ParseConfig(source, text, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Problems(); len(got) != 3 || !strings.Contains(got[0].Error(), source+", key config, templates.other: template: other:1: function \"unheardOf\" not defined") {
		t.Errorf("problems: %v", got)
	}
	s := &Settings{Config: c}
	if _, err := s.Inject(t.Context(), Request{Pod: podOf(t, simplePod)}); err != nil {
		t.Error(err)
	}
	pod := podOf(t, simplePod)
	for asked, want := range map[string]string{"other": "unheardOf", "absent": "there is no template \"absent\", only other, secret, sidecar, time", strings.Repeat("sidecar,", 17): "at most 16"} {
		pod.Annotations = map[string]string{"inject.istio.io/templates": asked}
		if _, err := s.Inject(t.Context(), Request{Pod: pod}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20s: %v, want %s", asked, err, want)
		}
	}
	many, err := ParseConfig(source, "defaultTemplates: ["+strings.Repeat("sidecar,", 17)+"]\n"+text, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = (&Settings{Config: many}).Inject(t.Context(), Request{Pod: podOf(t, simplePod)})
	if err == nil || !strings.Contains(err.Error(), source+", key config, defaultTemplates: 17 templates") {
		t.Errorf("17 default templates: %v", err)
	}
	for _, bad := range []struct{ config, values, want string }{
		{"policy: enabled\ndefaultTemplates: [other]\n" + text[len("policy: enabled\n"):], "", "unheardOf"},
		{"policy: perhaps\n" + text[len("policy: enabled\n"):], "", `policy "perhaps": want enabled or disabled`},
		{"policy: enabled", "", "there is no template"},
		{"policy: [", "", "key config"},
		{text, "[", "key values"},
		{text, "global: {logging: {level: loud}}", `global.logging.level: log level "loud"`},
		{text + "neverInjectSelector: [{}, {matchExpressions: [{key: a, operator: Like}]}]", "", "neverInjectSelector[1]"},
	} {
		c, err := ParseConfig(source, bad.config, bad.values, nil)
		if c != nil || err == nil || !strings.Contains(err.Error(), bad.want) || !strings.HasPrefix(err.Error(), source) {
			t.Errorf("%v, want %s", err, bad.want)
		}
	}
}

// A template may change its values; the next Pod has the values of the ConfigMap again.
func TestTemplatesShareNothing(t *testing.T) {
	s := templated(t, "metadata: {labels: {hub: \"{{ .Values.global.hub }}\"}}\n{{ $_ := set .Values.global \"hub\" \"changed\" }}")
	for range 2 {
		pod, err := s.Inject(t.Context(), Request{Pod: podOf(t, simplePod)})
		if err != nil || pod.Labels["hub"] != "h" {
			t.Fatalf("%v, %v", pod, err)
		}
	}
}
