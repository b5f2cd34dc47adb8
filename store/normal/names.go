package normal

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"navarch.io/navarch/store/problem"
)

// fqdn returns the full host for a host name in an object, in lower case. The parameter namespace is the namespace of
// the object. A name without dots refers to a service of that namespace
// (https://istio.io/latest/docs/reference/config/networking/virtual-service/#VirtualService, hosts).
func (n *Normalizer) fqdn(host, namespace string) string {
	if host == "" || strings.ContainsAny(host, ".*:/") {
		return hostOf(host)
	}
	return strings.ToLower(host) + "." + namespace + ".svc." + n.Domain
}

// hostOf returns a host in lower case, without the final dot of an absolute name (RFC 1034, 3.1).
func hostOf(text string) string { return strings.TrimSuffix(strings.ToLower(text), ".") }

// checkExportTo reports faults of the field exportTo that make Istio's webhook refuse an object (validateExportTo in
// Istio's pkg/config/validation), although a stored object with them is applied. The faults are a repeated namespace,
// further entries beside "*", and "~" for an object that does not permit it. The parameter permitsNone reports whether
// the object permits "~".
func (r *report) checkExportTo(stated []string, namespace string, permitsNone bool) {
	const at = "spec.exportTo"
	seen := map[string]bool{}
	for i, e := range stated {
		if e == "." {
			e = namespace
		}
		if seen[e] {
			r.refusef(problem.Duplicate, fmt.Sprintf("%s[%d]", at, i), "%q occurs twice", e)
		}
		seen[e] = true
	}
	if seen["*"] && len(seen) > 1 {
		r.refusef(problem.Invalid, at, `"*" (everybody) must be the only entry`)
	}
	if seen["~"] && !permitsNone {
		r.refusef(problem.Invalid, at, `"~" (nobody) is for ServiceEntries alone`)
	}
}

// exportTo resolves a list of namespaces to ["*"] (all), ["~"] (no namespace) or sorted names. The parameter fallback,
// the default of the mesh, replaces an empty list. If both are empty, the result is ["*"]. Invalid entries are reported
// and omitted.
func (r *report) exportTo(path string, stated, fallback []string, namespace string) []string {
	if len(stated) == 0 {
		stated, path = fallback, "meshConfig"
		r.mesh = true
	}
	if len(stated) == 0 {
		return []string{"*"}
	}
	var out []string
	for _, e := range stated {
		switch e = strings.TrimSpace(e); {
		case e == "*":
			return []string{"*"}
		case e == ".":
			out = append(out, namespace)
		case e == "~":
			if len(stated) > 1 {
				r.errorf(path, `"~" (nobody) must be the only entry`)
			}
			return []string{"~"}
		case len(validation.IsDNS1123Label(e)) > 0:
			r.errorf(path, "%q is no namespace: want a name, \".\", \"*\" or \"~\"", e)
		default:
			out = append(out, e)
		}
	}
	if out = sortedSet(out); len(out) > mostNamespaces {
		r.errorf(path, "has %d namespaces: want at most %d, or \"*\"", len(out), mostNamespaces)
	}
	return out
}

// mostNamespaces is the largest number of names in an exportTo list. It bounds the time to compare the lists of objects
// that have a host in common.
const mostNamespaces = 2048

// gateway resolves the name of a Gateway in a VirtualService to "mesh" or namespace/name. An empty name stays empty.
// The deprecated form name.namespace is accepted too, also with a suffix after the namespace.
func gateway(name, namespace string) string {
	if name == "mesh" || name == "" {
		return name
	}
	if ns, rest, ok := strings.Cut(name, "/"); ok {
		if ns == "." {
			ns = namespace
		}
		return ns + "/" + rest
	}
	if short, rest, ok := strings.Cut(name, "."); ok {
		ns, _, _ := strings.Cut(rest, ".")
		return ns + "/" + short
	}
	return namespace + "/" + name
}

// wildcardHost returns the fault of an invalid host, and an empty text for a valid host. A valid host may begin with a
// wildcard.
func wildcardHost(host string) string {
	if host == "*" {
		return ""
	}
	if rest, ok := strings.CutPrefix(host, "*"); ok {
		if dotted, ok := strings.CutPrefix(rest, "."); ok {
			return plainHost(dotted)
		}
		if dashed, ok := strings.CutPrefix(rest, "-"); ok {
			return plainHost(dashed)
		}
		return "a wildcard must be a whole label (*.example.com) or be followed by a dash"
	}
	return plainHost(host)
}

// plainHost returns the fault of an invalid host, and an empty text for a valid host. IP addresses are valid, and
// wildcards are invalid.
func plainHost(host string) string {
	if host == "" {
		return "must not be empty"
	}
	if strings.Contains(host, "*") {
		return "a wildcard may only be its first label"
	}
	if address, err := netip.ParseAddr(host); err == nil {
		if address.Zone() != "" {
			return "must have no zone" // ParseAddr accepts any text as a zone
		}
		return ""
	}
	if wrong := validation.IsDNS1123Subdomain(hostOf(host)); len(wrong) > 0 {
		return "is no valid host name: " + wrong[0]
	}
	return ""
}

// hostname reports hosts that plainHost accepts but Istio's webhook refuses (ValidateWildcardDomain in Istio's
// pkg/config/validation/agent). Such a host has a label of more than 63 characters, ends with a numeric label, or is an
// IP address.
func (r *report) hostname(at, host string) {
	r.step()
	labels := strings.Split(hostOf(host), ".")
	for _, label := range labels {
		if len(label) > validation.DNS1123LabelMaxLength {
			r.refusef(problem.Invalid, at, "%q has a label of %d characters: want at most %d", host, len(label), validation.DNS1123LabelMaxLength)
			return
		}
	}
	if _, err := strconv.Atoi(labels[len(labels)-1]); err == nil || isIP(host) {
		r.refusef(problem.Invalid, at, "%q is no name: its last label must not be a number", host)
	}
}

// addressOrPrefix returns an empty text if s is an IP address or a CIDR block, and a description of the fault if it is
// not.
func addressOrPrefix(s string) string {
	if strings.Contains(s, "/") {
		if _, err := netip.ParsePrefix(s); err != nil {
			return "is no CIDR block"
		}
		return ""
	}
	if _, err := netip.ParseAddr(s); err != nil {
		return "is no IP address or CIDR block"
	}
	return ""
}

// isIP reports whether a text is an IP address.
func isIP(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

// port reports a port outside 1-65535.
func (r *report) port(path string, number uint32) {
	r.step()
	if number < 1 || number > 65535 {
		r.errorf(path, "port %d is not in 1-65535", number)
	}
}

// labels reports invalid labels. A value that is only too long causes a warning, because Istio accepts it. Other faults
// are errors.
func (r *report) labels(path string, labels map[string]string) {
	r.step()
	for _, key := range sortedKeys(labels) {
		if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
			r.errorf(path, "label key %q: %s", key, wrong[0])
		}
		value := labels[key]
		switch wrong := validation.IsValidLabelValue(value); {
		case len(wrong) == 0:
		case labelValue.MatchString(value):
			r.warnf(problem.NoEffect, path, "label %s has a value of %d characters, which no label value in Kubernetes can have", key, len(value))
		default:
			r.errorf(path, "label %s=%q: %s", key, value, wrong[0])
		}
	}
}

var (
	// labelValue matches valid values of labels. It does not limit their length.
	labelValue = regexp.MustCompile(`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`)
	// nameLabel matches names of ports and subsets: a DNS label in upper or lower case, as in Istio
	// (pkg/config/labels).
	nameLabel = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$`)
)

// name refuses a name that is not a DNS label in upper or lower case, of at most 63 characters.
func (r *report) name(path, name string) {
	r.step()
	if len(name) > validation.DNS1123LabelMaxLength || !nameLabel.MatchString(name) {
		r.refusef(problem.Invalid, path, "%q is no valid name: want letters, digits and dashes, at most 63", name)
	}
}

// selector reports invalid labels in a selector of workloads. A label that no workload can have causes a warning: the
// selector matches no workload. A wildcard is an error, because its author expects a match (istio:
// validateWorkloadSelector).
func (r *report) selector(path string, labels map[string]string) {
	for _, key := range sortedKeys(labels) {
		value := labels[key]
		switch {
		case key == "":
			r.requiredf(path, "a label without a name")
		case strings.Contains(key+value, "*"):
			r.errorf(path, "label %s=%q: wildcards are not supported", key, value)
		case len(validation.IsQualifiedName(key))+len(validation.IsValidLabelValue(value)) > 0:
			r.analysef(problem.NoMatchingWorkloadsFound, problem.NoEffect, path, "no workload can have the label %s=%q: nothing is selected", key,
				value)
		}
	}
}

// sortedSet returns a sorted copy without duplicates. It returns nil for an empty list.
func sortedSet(in []string) []string {
	if len(in) == 0 {
		return nil
	}
	out := slices.Clone(in)
	slices.Sort(out)
	return slices.Compact(out)
}
