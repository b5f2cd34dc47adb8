package analyze

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// Reported is a problem that the control plane reports: one item of /api/v1/problems. Run uses only problems with a
// code that the control plane alone can find, and ignores the others.
type Reported struct {
	Object   string           `json:"object"`   // "Kind namespace/name"
	Location string           `json:"location"` // for VersionWithheld: the withheld resource; for other codes unused
	Field    string           `json:"field"`    // path of the field; empty: the whole object
	Analyzer problem.Analyzer `json:"analyzer"` // code of the problem; empty: the problem has no code
	Message  string           `json:"message"`
	Proxies  int              `json:"proxies"` // for RefusedByProxies: the number of proxies that refuse the configuration
}

// fromControlPlane are the codes that only the control plane can report. They are about refusals by proxies, the usage
// of tenants, and the age of the control plane's data about clusters.
var fromControlPlane = []problem.Analyzer{problem.RefusedByProxies, problem.VersionWithheld, problem.TenantNearBudget, problem.ClusterStale}

// reports adds the reported problems with the codes of fromControlPlane. Problems with other codes are found in the
// objects themselves.
func reports(w *world) {
	for _, r := range w.reported {
		if !slices.Contains(fromControlPlane, r.Analyzer) {
			continue
		}
		message := r.Message
		switch {
		case r.Analyzer == problem.RefusedByProxies && r.Proxies > 0:
			message = fmt.Sprintf("%d proxies refuse it: %s", r.Proxies, r.Message)
			if r.Proxies == 1 {
				message = "one proxy refuses it: " + r.Message
			}
		case r.Analyzer == problem.VersionWithheld && r.Location != "":
			message = r.Location + ": " + r.Message
		}
		w.add(object.Problem{ID: w.named(r.Object), Field: r.Field, Message: message}, r.Analyzer)
	}
}

// patches reports patches that change nothing of the connected proxies. It leaves out filters that select no workload,
// which are findings already (NoMatchingWorkloadsFound), and filters that were read from files, since the control plane
// has another version of them.
func patches(w *world) {
	unselecting := map[object.ID]bool{}
	for _, f := range w.findings {
		if f.Code == string(problem.NoMatchingWorkloadsFound) {
			unselecting[f.id] = true
		}
	}
	for _, p := range w.patches {
		id := w.named(p.Object)
		if p.Changed == nil || *p.Changed > 0 || w.location(id) != "" || unselecting[id] {
			continue
		}
		w.found(problem.PatchWithoutEffect, id, fmt.Sprintf("spec.configPatches[%d]", p.Index),
			"%s of %s changes nothing of the connected proxies: its match fits no resource, or they have its values already", p.Operation,
			p.ApplyTo)
	}
}

// idsByName maps the names of all objects, "Kind namespace/name", to their IDs. Of several objects with one name, the
// object whose ID is the least (ID.Compare) counts.
func (w *world) idsByName() map[string]object.ID {
	if w.ids != nil {
		return w.ids
	}
	all := make(map[string]object.ID, len(w.byID))
	for id := range w.byID {
		name := id.String()
		if before, is := all[name]; !is || id.Compare(before) < 0 {
			all[name] = id
		}
	}
	w.ids = all
	return all
}

// named returns the ID of an object by its name "Kind namespace/name". For an object that was not read, the ID has no
// group.
func (w *world) named(name string) object.ID {
	if id, is := w.idsByName()[name]; is {
		return id
	}
	word, rest, _ := strings.Cut(name, " ")
	namespace, short, is := strings.Cut(rest, "/")
	if !is {
		namespace, short = "", rest
	}
	return w.id("", word, namespace, short)
}

// rootKeys are the keys of ConfigMaps under which the root certificates for proxies are stored.
var rootKeys = []string{"root-cert.pem", "ca-root-cert.pem", "ca.crt"}

// authorities reports CA certificates that have ended or end soon: root certificates of the mesh, and CA certificates
// by which gateways verify clients.
func authorities(w *world) {
	for o, of := range decoded[corev1.ConfigMap](w, "", "ConfigMap") {
		for _, key := range rootKeys {
			if end, which := w.firstEnd([]byte(of.Data[key])); end != "" {
				w.found(problem.AuthorityEnds, o.ID, "data["+key+"]",
					"the authority %s %s: certificates below it are refused from then on", which, end)
			}
		}
	}
	for s := range each[*model.Secret](w, model.KindSecret) {
		if end, which := w.firstEnd(s.Spec.GetTrust()); end != "" {
			w.foundRecord(problem.AuthorityEnds, s, "data", "the authority %s %s: clients with certificates below it are refused from then on",
				which, end)
		}
	}
}

// maxAuthorities is the maximum number of certificates that are parsed in one text.
const maxAuthorities = 200

// firstEnd finds the certificate in PEM text that expires first. end describes the expiry as ending does; end is empty
// if the certificate has not expired and does not expire soon. The second result is the certificate's subject.
func (w *world) firstEnd(text []byte) (end, which string) {
	var first *x509.Certificate
	for range maxAuthorities {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		text = rest
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && (first == nil || c.NotAfter.Before(first.NotAfter)) {
			first = c
		}
	}
	if first == nil {
		return "", ""
	}
	return w.ending(first.NotAfter), cmp.Or(first.Subject.String(), "without a name")
}
