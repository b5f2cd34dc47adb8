package analyze

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/problem"
)

// recorded returns what a report contains of some objects: their records, the leader's problems, and the patches. It
// leaves out patches of objects in files, and of objects with an annotation of suppression, which no record has.
func recorded(in Input) Recorded {
	w := index(in, config)
	records, problems := ingest.Records(slices.Concat(in.Events, w.made), config.Normal)
	r := Recorded{Records: mirror.Empty().Apply(1, records, nil).New, Patches: []inspect.Patch{}}
	for _, p := range problems {
		r.Known = append(r.Known, Known(Finding{Code: cmp.Or(string(p.Analyzer), string(p.Code)), Severity: p.Severity,
			Object: p.ID.String(), Field: p.Field, Message: p.Message}))
	}
	for _, p := range in.Patches {
		o := w.byID[w.named(p.Object)]
		if o == nil || o.Location == "" && o.Annotations[suppression] == "" {
			r.Patches = append(r.Patches, p)
		}
	}
	return r
}

// texts returns the findings with a code, without places.
func texts(all []Finding, code string) (out []string) {
	for _, f := range all {
		if f.Code == code {
			out = append(out, string(f.Severity)+" "+f.Object+" "+f.Field+": "+f.Message)
		}
	}
	slices.Sort(out)
	return out
}

// On a report, each code is found by the leader or the replicas, found in the records as in the objects, or named as
// not checked.
// Promise: analysis.md#a-report
func TestCodesOnAReport(t *testing.T) {
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	var unchecked []problem.Analyzer
	for _, codes := range (Recorded{Records: mirror.Empty(), Patches: []inspect.Patch{}}).Unchecked() {
		unchecked = append(unchecked, codes...)
	}
	for _, code := range Codes() {
		if ReporterOf(code) != Analyze {
			if slices.Contains(unchecked, code) {
				t.Errorf("%s is reported by the %s, and named as not checked", code, ReporterOf(code))
			}
			continue
		}
		t.Run(string(code), func(t *testing.T) {
			archive, err := txtar.ParseFile(filepath.Join(dir, string(code)+".txtar"))
			if err != nil {
				t.Fatal(err)
			}
			config := config
			if code == problem.ProxyOverBudget {
				config.ProxyBytes = 10_000
			}
			in := input(t, archive.Files, "both", "fires")
			got, err := RunRecorded(recorded(in), config)
			if err != nil {
				t.Fatal(err)
			}
			if slices.Contains(unchecked, code) {
				if found := texts(got, string(code)); len(found) > 0 {
					t.Errorf("is named as not checked, and found: %q", found)
				}
				return
			}
			want := texts(Run(in, config), string(code))
			if found := texts(got, string(code)); !slices.Equal(found, want) {
				t.Errorf("found\n%s\nwant\n%s", strings.Join(found, "\n"), strings.Join(want, "\n"))
			}
			near, err := RunRecorded(recorded(input(t, archive.Files, "both", "near")), config)
			if found := texts(near, string(code)); err != nil || len(found) > 0 {
				t.Errorf("the near miss: %q, %v", found, err)
			}
		})
	}
}
