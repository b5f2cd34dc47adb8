package inject

import (
	"fmt"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/scan"
)

// Bounds of the overlays (parsed results of templates) that a Config keeps. The overlays need about 16 MiB if all have
// the largest size, and 2 MiB with Istio's own templates.
const (
	maxOverlays    = 128
	maxOverlayText = 32 << 10 // bytes of text; results of larger texts are not kept
)

// overlays caches the parsed results of templates by their text. For the Pods of one workload templates often yield the
// same text, and parsing YAML is the largest part of an injection. overlays is safe for concurrent use.
type overlays struct {
	read *lru.Cache[string, map[string]any] // immutable: callers of parse get copies
}

func newOverlays() *overlays {
	read, err := lru.New[string, map[string]any](maxOverlays)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &overlays{read: read}
}

// parse parses the result of a template. The caller owns the returned map, which is empty for an empty text. It fails
// if the text is not a YAML object, or if its aliases expand to more than maxElements values.
func (o *overlays) parse(text string) (map[string]any, error) {
	if out, known := o.read.Get(text); known {
		return runtime.DeepCopyJSON(out), nil
	}
	if strings.ContainsRune(text, '&') && strings.ContainsRune(text, '*') { // YAML aliases may multiply values
		if err := scan.YAML([]byte(text), maxElements); err != nil {
			return nil, fmt.Errorf("its output is not YAML, or has more than %d values: %w%s", maxElements, err, lineOf(text, err))
		}
	}
	var out map[string]any
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		return nil, fmt.Errorf("its output is not YAML: %w%s", err, lineOf(text, err))
	}
	if out == nil {
		out = map[string]any{}
	}
	if len(text) <= maxOverlayText {
		o.read.Add(text, runtime.DeepCopyJSON(out))
	}
	return out, nil
}

// lineOf quotes the line that a YAML error names, and the next line, because the error may be about either of them. The
// result is empty if the error names no line.
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
