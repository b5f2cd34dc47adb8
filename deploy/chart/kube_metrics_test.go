//go:build kube

package chart

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// expressions returns those of all alerts and dashboards, by their location. $namespace is a variable of Grafana.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, r := range alerts(t) {
		all["alert "+r.Alert] = r.Expr
	}
	files, _ := filepath.Glob("files/dashboards/*.json")
	if len(files) < 3 {
		t.Errorf("%d dashboards", len(files))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			UID, Title string
			Panels     []struct {
				Title   string
				Targets []struct{ Expr, LegendFormat string }
			}
		}
		if err := json.Unmarshal(text, &board); err != nil || board.UID == "" || board.Title == "" || len(board.Panels) == 0 {
			t.Fatalf("%s: %v", file, err)
		}
		for _, p := range board.Panels {
			for i, target := range p.Targets {
				all[filepath.Base(file)+", "+p.Title+", "+strconv.Itoa(i)] = target.Expr
			}
		}
	}
	return all
}

// added are labels that scraping, and histograms, add to those of navarchd.
var added = []string{"namespace", "pod", "istio_io_rev", "le"}

// known returns the metrics of navarchd by name, with their labels, read from the source of store/obs. Histograms have
// the names of their series. Metrics of the Go client for processes, and of kube-state-metrics, are not in that source,
// and are added.
func known(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{"process_resident_memory_bytes": nil, "process_cpu_seconds_total": nil, "go_gc_heap_live_bytes": nil,
		"kube_cronjob_status_last_schedule_time": {"cronjob"}, "kube_cronjob_status_last_successful_time": {"cronjob"}}
	file, err := parser.ParseFile(token.NewFileSet(), "../../store/obs/obs.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, is := n.(*ast.CallExpr)
		if !is {
			return true
		}
		of, is := call.Fun.(*ast.Ident)
		if !is || !regexp.MustCompile(`^(counter|gauge|histogram)(Vec|Sizes)?$`).MatchString(of.Name) {
			return true
		}
		var texts []string
		for _, arg := range call.Args {
			if text := textOf(arg); text != "" {
				texts = append(texts, text)
			}
		}
		if len(texts) < 2 {
			return true
		}
		name, labels := texts[0], texts[2:]
		if strings.HasPrefix(of.Name, "histogram") {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				all[name+suffix] = labels
			}
			return true
		}
		all[name] = labels
		return true
	})
	if len(all) < 80 {
		t.Errorf("%d metrics are known", len(all))
	}
	return all
}

// textOf returns the string of a literal, or of literals that are joined by +; empty: it is neither.
func textOf(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.BasicLit:
		text, _ := strconv.Unquote(x.Value) // a literal of a file that compiles
		return text
	case *ast.BinaryExpr:
		return textOf(x.X) + textOf(x.Y)
	}
	return ""
}
