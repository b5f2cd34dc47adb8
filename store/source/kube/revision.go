package kube

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// revisionLabel is the label that assigns a configuration object to one revision of Istio. Without the label an object
// applies to all revisions (istio: pkg/config/model.go, LabelsInRevision). With an empty value it applies to no
// revision.
const revisionLabel = "istio.io/rev"

// otherRevision reports whether the label istio.io/rev excludes a configuration object from this process's revision. As
// in Istio, the label has an effect on kinds of Istio and of the Gateway API only.
func (s *Source) otherRevision(k kind, labels map[string]string) bool {
	of, stated := labels[revisionLabel]
	return stated && wanted(k.group) && of != s.Revision
}

// ignored reports whether a kind matches a pattern of Config.Ignore (PILOT_IGNORE_RESOURCES) and no pattern of
// Config.Include (PILOT_INCLUDE_RESOURCES). Examples of patterns: virtualservices.networking.istio.io, *.istio.io.
func (s *Source) ignored(resource, group string) bool {
	name := resource + "." + group
	matches := func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	}
	return slices.ContainsFunc(s.Ignore, matches) && !slices.ContainsFunc(s.Include, matches)
}

// checkPatterns returns an error that names the first invalid pattern for kinds.
func checkPatterns(all []string) error {
	for _, p := range all {
		if _, err := path.Match(p, ""); err != nil || p == "" || strings.Contains(p, "/") {
			return fmt.Errorf("%q is not a pattern for RESOURCE.GROUP, such as *.istio.io", p)
		}
	}
	return nil
}
