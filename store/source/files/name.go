package files

import (
	"fmt"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"
)

// misnamed says what is wrong with the name or the namespace of an object, by the rules that Kubernetes has for its kind
// (https://kubernetes.io/docs/concepts/overview/working-with-objects/names/); empty: nothing.
func (h head) misnamed() string {
	m := h.Metadata
	if m.Name == "" {
		return "metadata.name is missing"
	}
	valid := validation.IsDNS1123Subdomain
	group, _ := cutLast(h.APIVersion)
	switch {
	case group == "rbac.authorization.k8s.io":
		valid = pathSegment // system:node
	case group == "" && (h.Kind == "Service" || h.Kind == "Namespace"):
		valid = validation.IsDNS1123Label
	}
	if wrong := valid(m.Name); len(wrong) > 0 {
		return fmt.Sprintf("metadata.name: %.80q: %s", m.Name, wrong[0])
	}
	if m.Namespace != "" {
		if wrong := validation.IsDNS1123Label(m.Namespace); len(wrong) > 0 {
			return fmt.Sprintf("metadata.namespace: %.80q: %s", m.Namespace, wrong[0])
		}
	}
	return ""
}

// pathSegment is the rule for names that are no DNS names.
func pathSegment(name string) []string {
	if name == "." || name == ".." || strings.ContainsAny(name, "/%") || strings.ContainsFunc(name, unicode.IsControl) {
		return []string{`may not be "." or ".." or hold "/", "%" or control characters`}
	}
	return nil
}

// longestName is the length in bytes of the longest name that Kubernetes takes.
const longestName = validation.DNS1123SubdomainMaxLength

// printable is a name as it may be shown: no control characters, and no longer than names may be.
func printable(name string) string {
	name = strings.ToValidUTF8(name[:min(len(name), longestName)], "?")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, name)
}
