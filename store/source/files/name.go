package files

import (
	"fmt"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"
)

// misnamed returns the fault in the name or the namespace of an object, by Kubernetes' rules for its kind
// (https://kubernetes.io/docs/concepts/overview/working-with-objects/names/). It returns an empty text for a valid
// name.
func (h head) misnamed() string {
	m := h.Metadata
	if m.Name == "" {
		return "metadata.name is missing"
	}
	valid := validation.IsDNS1123Subdomain
	group, _ := cutLast(h.APIVersion)
	switch {
	case group == "rbac.authorization.k8s.io":
		valid = pathSegment // such as system:node
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

// pathSegment checks a name that need not be a DNS name. It returns nil for a valid name.
func pathSegment(name string) []string {
	if name == "." || name == ".." || strings.ContainsAny(name, "/%") || strings.ContainsFunc(name, unicode.IsControl) {
		return []string{`may not be "." or ".." or hold "/", "%" or control characters`}
	}
	return nil
}

// longestName is the longest name that Kubernetes accepts, in bytes.
const longestName = validation.DNS1123SubdomainMaxLength

// printable returns a name for messages, without control characters and cut to longestName.
func printable(name string) string {
	name = strings.ToValidUTF8(name[:min(len(name), longestName)], "?")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, name)
}
