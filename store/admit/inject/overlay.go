package inject

import (
	"fmt"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/scan"
)

// Bounds of the overlays that a Config keeps: some 16 MiB where all are as large as they may be, 2 MiB with Istio's own templates.
const (
	maxOverlays    = 128
	maxOverlayText = 32 << 10 // bytes; larger ones are not kept
)

// overlays are what templates gave, read as parts of a Pod, by their text: the Pods of one workload come one after the other and are given the same, and
// reading YAML is the greatest part of an injection. Safe for concurrent use.
type overlays struct {
	read *lru.Cache[string, map[string]any] // not changed: StrategicMergeMapPatch is given copies
}

func newOverlays() *overlays {
	read, err := lru.New[string, map[string]any](maxOverlays)
	if err != nil {
		panic(err) // of a size below 1
	}
	return &overlays{read: read}
}

// parse reads a text. What it gives is the caller's.
func (o *overlays) parse(text string) (map[string]any, error) {
	if out, known := o.read.Get(text); known {
		return runtime.DeepCopyJSON(out), nil
	}
	if strings.ContainsRune(text, '&') && strings.ContainsRune(text, '*') { // aliases may make it large; the template's own text is bounded
		if err := scan.YAML([]byte(text), maxElements); err != nil {
			return nil, fmt.Errorf("what it gives is not YAML, or too much: %w%s", err, lineOf(text, err))
		}
	}
	var out map[string]any
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		return nil, fmt.Errorf("what it gives is not YAML: %w%s", err, lineOf(text, err))
	}
	if out == nil {
		out = map[string]any{}
	}
	if len(text) <= maxOverlayText {
		o.read.Add(text, runtime.DeepCopyJSON(out))
	}
	return out, nil
}

// lineOf quotes the line of a text that an error of YAML names, and the one after: it is one of both.
func lineOf(text string, err error) string {
	_, after, found := strings.Cut(err.Error(), "line ")
	var n int
	if _, scan := fmt.Sscanf(after, "%d", &n); !found || scan != nil {
		return ""
	}
	lines := strings.Split(text, "\n")
	if n < 1 || n > len(lines) {
		return ""
	}
	all := quoted(lines[n-1 : min(n+1, len(lines))])
	return " (" + strings.Join(all, ", ") + ")"
}

func quoted(lines []string) (all []string) {
	for _, line := range lines {
		all = append(all, fmt.Sprintf("%.200q", strings.TrimSpace(line)))
	}
	return all
}
