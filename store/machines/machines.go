// Package machines decides which WorkloadEntries exist for machines that register themselves (WorkloadGroups, Istio's auto-registration):
// replicas report in registrations/ which machines are connected to them, and the leader decides from these reports.
//
// Owns: since when each entry has no connected machine; the form of a report.  Reads: registrations/, by store/kv; which entries exist, from
// the writer.  Never: decides by a clock of another process; who may register (push/machines); writes to Kubernetes (store/status).
package machines

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	networkingv1 "istio.io/api/networking/v1alpha3"
)

// Annotations that istiod gives to WorkloadEntries (istio.io/istio, pilot/pkg/autoregistration/internal/state).
const (
	GroupAnnotation          = "istio.io/autoRegistrationGroup" // the WorkloadGroup that it was made of
	ControllerAnnotation     = "istio.io/workloadController"    // the replica that the machine is, or was last, connected to
	ConnectedAtAnnotation    = "istio.io/connectedAt"
	DisconnectedAtAnnotation = "istio.io/disconnectedAt"
	HealthCheckAnnotation    = "proxy.istio.io/health-checks-enabled"
)

// Folder is where replicas report. It is not named after the package: mirrors would watch it (kv.Families).
const Folder = "registrations/"

// Bounds of what one client can make others keep.
const (
	MostOfAccount = 1000     // WorkloadEntries of one service account, connected or within the grace
	MaxReport     = 64 << 10 // bytes of one machine's report
	MaxMessage    = 512      // bytes of what an agent says about health
	// MostOfCredential is how many of an account's one credential has at most: a quarter, as of what else credentials share (push/budget). It is
	// the same however many there are, so what one process lets in another one does, in whatever order machines come to it.
	MostOfCredential = MostOfAccount / 4
)

// Full says why a service account may not have one more machine, by a credential by which it has some; empty: it may.
func Full(ofAccount, ofCredential int) string {
	switch {
	case ofAccount >= MostOfAccount:
		return fmt.Sprintf("has %d machines already", ofAccount)
	case ofCredential >= MostOfCredential:
		return fmt.Sprintf("has %d machines by one credential already, and the others are for other credentials: give machines tokens of "+
			"their own", ofCredential)
	}
	return ""
}

// Name is of a WorkloadEntry.
type Name struct{ Namespace, Name string }

// String is namespace/name.
func (n Name) String() string { return n.Namespace + "/" + n.Name }

// Machine is one machine, as the replica that it is connected to reports it.
type Machine struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`    // of its WorkloadEntry
	Account   string `json:"account"` // service account that it has proved to be of
	// Credential is a digest of what it has proved that by, equal for a token and for what was issued for that; empty: a replica of an older
	// version reports it, and nothing is compared.
	Credential string `json:"credential,omitempty"`
	// Group is the WorkloadGroup that its entry is made of; empty: the entry is somebody else's, and its health alone is followed.
	Group       string                      `json:"group,omitempty"`
	Labels      map[string]string           `json:"labels,omitempty"`      // of the entry, as an object
	Annotations map[string]string           `json:"annotations,omitempty"` // the same, without those above
	Checked     bool                        `json:"checked,omitempty"`     // its agent reports its health
	Spec        *networkingv1.WorkloadEntry `json:"spec,omitempty"`        // nil where there is no Group
	// Taken is whose its address has become since it was registered, a Pod's or a Service's: it has no entry as long as that is so. Empty: it is its own.
	Taken     string    `json:"taken,omitempty"`
	Replica   string    `json:"replica"`
	Connected time.Time `json:"connected"`
	// Disconnected is when its last stream ended; zero: it is connected. Replicas report that for as long as the grace.
	Disconnected time.Time `json:"disconnected,omitzero"`
	Health       *Health   `json:"health,omitempty"` // nil: its agent has reported nothing on this connection
}

// Health is what an agent reported last.
type Health struct {
	Healthy bool      `json:"healthy"`
	Message string    `json:"message,omitempty"` // why it is not healthy
	At      time.Time `json:"at"`
}

// ID names its WorkloadEntry.
func (m Machine) ID() Name { return Name{m.Namespace, m.Name} }

// Holder is who a WorkloadEntry is of, while its machine is connected.
type Holder struct{ Account, Credential string }

// Holder is who has proved to be the machine.
func (m Machine) Holder() Holder { return Holder{m.Account, m.Credential} }

// Is says whether two are the same, as far as is known.
func (h Holder) Is(o Holder) bool {
	return h.Account == o.Account && (h.Credential == o.Credential || h.Credential == "" || o.Credential == "")
}

// Meet says whether two networks may be one: a network that is not named may be any.
func Meet(a, b string) bool { return a == b || a == "" || b == "" }

// Held says why a machine does not take over a WorkloadEntry: it has not shown what its holder has.
func Held(name Name, by Holder) string {
	return fmt.Sprintf("WorkloadEntry %s is of a machine of service account %q that is connected by another credential", name, by.Account)
}

// Encode is the form in etcd. An error: it is larger than MaxReport.
func (m Machine) Encode() ([]byte, error) {
	raw, err := json.Marshal(m)
	if err == nil && len(raw) > MaxReport {
		return nil, fmt.Errorf("its report has %d bytes, %d at most", len(raw), MaxReport)
	}
	return raw, err
}

// Decode is the inverse of Encode. What lacks a name, or an entry to be made without one, is an error.
func Decode(raw []byte) (m Machine, err error) {
	if len(raw) > MaxReport {
		return m, fmt.Errorf("%d bytes, at most %d are read", len(raw), MaxReport)
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, err
	}
	if m.Namespace == "" || m.Name == "" || m.Group != "" && m.Spec == nil {
		return m, fmt.Errorf("machine %s: no name, or nothing to make its WorkloadEntry of", m.ID())
	}
	return m, nil
}

// Path is where a process reports a machine: each its own, so that nobody overwrites another's report.
func (m Machine) Path(process string) string {
	return Folder + process + "/" + m.Namespace + "/" + m.Name
}

// EntryName is the name of the WorkloadEntry that istiod gives to a machine: GROUP-ADDRESS, with -NETWORK where it has one; of more than 253
// bytes the last (pilot/pkg/autoregistration, autoregisteredWorkloadEntryName).
func EntryName(group, address, network string) string {
	name := group + "-" + strings.ReplaceAll(address, ":", "-")
	if network != "" {
		name += "-" + network
	}
	return strings.TrimLeft(name[max(0, len(name)-253):], "-.")
}
