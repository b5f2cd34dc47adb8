package scene

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

const suffix = ".svc.cluster.local"

// short leaves the suffix of the cluster out of names.
func short(text string) string { return strings.ReplaceAll(text, suffix, "") }

// differences returns the resources of one type that differ between two sets.
func differences(have, want *manifest.Set, t xds.Type) (out []string) {
	versions := map[string]string{}
	for r := range want.Types[t].All() {
		versions[r.Name] = r.Version
	}
	for r := range have.Types[t].All() {
		if v, ok := versions[r.Name]; !ok {
			out = append(out, fmt.Sprintf("%v %s is too much", t, r.Name))
		} else if v != r.Version {
			out = append(out, fmt.Sprintf("%v %s differs", t, r.Name))
		}
		delete(versions, r.Name)
	}
	for name := range versions {
		out = append(out, fmt.Sprintf("%v %s is missing", t, name))
	}
	return out
}

// expect compares the account of one type with a scene's expectation, and resets it.
func (s *stage) expect(args []string) (string, error) {
	a, err := s.actor(args)
	if err != nil || len(args) < 2 {
		return "", errors.Join(err, errors.New("want PROXY TYPE [set=...] [drop=...] [responses=N]"))
	}
	t := slices.IndexFunc(allTypes, func(t xds.Type) bool { return t.String() == args[1] })
	if t < 0 {
		return "", fmt.Errorf("%q is no type: want one of %v", args[1], allTypes)
	}
	var faults []error
	wanted := map[string]string{"set": "", "drop": ""}
	for _, arg := range args[2:] {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "set", "drop":
			wanted[key] = value
		case "responses":
			if n, err := strconv.Atoi(value); err != nil || n != a.responses[t] {
				faults = append(faults, fmt.Errorf("%v came in %d responses, not %s", allTypes[t], a.responses[t], value))
			}
		default:
			return "", fmt.Errorf("%q: want set=, drop= or responses=", arg)
		}
	}
	faults = append(faults, matches(allTypes[t].String()+" set", a.set[t], wanted["set"]), matches(allTypes[t].String()+" dropped", a.dropped[t], wanted["drop"]))
	a.set[t], a.dropped[t], a.responses[t] = names{}, names{}, 0
	return "", errors.Join(faults...)
}

var allTypes = []xds.Type{xds.Cluster, xds.Endpoint, xds.Listener, xds.Route, xds.Secret, xds.Extension}

// matches returns an error that lists the unexpected and the missing names.
func matches(what string, have names, patterns string) error {
	used := names{}
	var over []string
	for name := range have {
		hit := false
		for _, p := range strings.Split(patterns, ",") {
			if p != "" && glob(p).MatchString(short(name)) {
				hit, used[p] = true, true
			}
		}
		if !hit {
			over = append(over, short(name))
		}
	}
	var missing []string
	for _, p := range strings.Split(patterns, ",") {
		if p != "" && !used[p] {
			missing = append(missing, p)
		}
	}
	slices.Sort(over)
	switch {
	case len(over) > 0 && len(missing) > 0:
		return fmt.Errorf("%s: not expected: %s; missing: %s", what, strings.Join(over, ","), strings.Join(missing, ","))
	case len(over) > 0:
		return fmt.Errorf("%s: not expected: %s", what, strings.Join(over, ","))
	case len(missing) > 0:
		return fmt.Errorf("%s: missing: %s", what, strings.Join(missing, ","))
	}
	return nil
}

func glob(pattern string) *regexp.Regexp {
	return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(short(pattern)), `\*`, ".*") + "$")
}

func (s *stage) nothing(args []string) (string, error) {
	a, err := s.actor(args)
	if err != nil {
		return "", err
	}
	var faults []error
	for _, t := range allTypes {
		faults = append(faults, matches(t.String()+" set", a.set[t], ""), matches(t.String()+" dropped", a.dropped[t], ""))
		if a.responses[t] > 0 && len(a.set[t])+len(a.dropped[t]) == 0 {
			faults = append(faults, fmt.Errorf("%v: %d empty responses", t, a.responses[t]))
		}
	}
	return "", errors.Join(faults...)
}

// amounts compares counts with a scene's expectations, name=N; counts without an expectation must be 0.
func amounts(have map[string]int64, args []string) error {
	var faults []error
	want := map[string]int64{}
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		n, err := strconv.ParseInt(value, 10, 64)
		if _, is := have[key]; !is || err != nil {
			return fmt.Errorf("%q: want NAME=N of %v", arg, slices.Sorted(maps.Keys(have)))
		}
		want[key] = n
	}
	for _, key := range slices.Sorted(maps.Keys(have)) {
		if have[key] != want[key] {
			faults = append(faults, fmt.Errorf("%s: %d, not %d", key, have[key], want[key]))
		}
	}
	return errors.Join(faults...)
}

func (s *stage) builds(args []string) (string, error) {
	now := s.pipeline.counts()
	have := map[string]int64{"vhost": now.fragments - s.built.fragments}
	for t := range xds.NumTypes {
		have[t.Noun()] = now.built[t] - s.built.built[t]
	}
	s.built = now
	return "", amounts(have, args)
}

func (s *stage) plans(args []string) (string, error) {
	now := plansMade()
	have := map[string]int64{}
	for lane, n := range now {
		have[lane] = int64(n - s.planned[lane])
	}
	s.planned = now
	return "", amounts(have, args)
}

func (s *stage) writes(args []string) (string, error) {
	n := s.pipeline.wrote
	s.pipeline.wrote = 0
	if len(args) != 1 || args[0] != strconv.Itoa(n) {
		return "", fmt.Errorf("%d records were written, not %v", n, args)
	}
	return "", nil
}

func (s *stage) shared(args []string) (string, error) {
	st := s.pipeline.plan.Stats()
	return "", amounts(map[string]int64{"scopes": int64(st.Scopes), "variants": int64(st.Variants), "workloads": int64(st.Workloads),
		"overlays": int64(st.Overlays), "views": int64(st.Views), "proxies": int64(st.Proxies)}, args)
}

func (s *stage) problems([]string) (string, error) {
	if err := s.settle(); err != nil {
		return "", err
	}
	var out strings.Builder
	for _, line := range s.pipeline.problemLines() {
		fmt.Fprintln(&out, line)
	}
	return out.String(), nil
}

func (s *stage) show(args []string) (string, error) {
	a, err := s.actor(args)
	if err != nil || len(args) < 2 {
		return "", errors.Join(err, errors.New("want PROXY TYPE [NAME]"))
	}
	t := xds.ParseNoun(args[1])
	if t == xds.Unknown {
		return "", fmt.Errorf("%q: want cluster, endpoint, listener or route", args[1])
	}
	var out bytes.Buffer
	if len(args) == 2 {
		for _, name := range slices.Sorted(maps.Keys(a.held[t])) {
			fmt.Fprintln(&out, short(name))
		}
		return out.String(), nil
	}
	for name, r := range a.held[t] {
		if short(name) != short(args[2]) {
			continue
		}
		raw, err := inspect.JSON(r)
		if err != nil {
			return "", err
		}
		if err := json.Indent(&out, raw, "", "  "); err != nil {
			return "", err
		}
		return out.String() + "\n", nil
	}
	return "", fmt.Errorf("%s does not hold %v %s", args[0], t, args[2])
}
