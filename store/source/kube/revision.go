package kube

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// revisionLabel names the revision of Istio that alone an object of configuration is for; without it an object is for all of them (istio:
// pkg/config/model.go, LabelsInRevision). An empty label names none.
const revisionLabel = "istio.io/rev"

// otherRevision says whether an object is for another revision than this process's. Istio asks that of its own kinds and those of the Gateway API.
func (s *Source) otherRevision(k kind, labels map[string]string) bool {
	of, stated := labels[revisionLabel]
	return stated && wanted(k.group) && of != s.Revision
}

// ignored says whether a kind is left out (PILOT_IGNORE_RESOURCES), and not read all the same (PILOT_INCLUDE_RESOURCES). Both are patterns for
// RESOURCE.GROUP: virtualservices.networking.istio.io, *.istio.io.
func (s *Source) ignored(resource, group string) bool {
	name := resource + "." + group
	matches := func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	}
	return slices.ContainsFunc(s.Ignore, matches) && !slices.ContainsFunc(s.Include, matches)
}

// checkPatterns says what is wrong with patterns of kinds.
func checkPatterns(all []string) error {
	for _, p := range all {
		if _, err := path.Match(p, ""); err != nil || p == "" || strings.Contains(p, "/") {
			return fmt.Errorf("%q is no pattern for RESOURCE.GROUP, as *.istio.io is one", p)
		}
	}
	return nil
}
