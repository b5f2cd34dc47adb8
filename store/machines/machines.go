// Package machines decides which WorkloadEntries exist for machines that register themselves (WorkloadGroups, Istio's
// auto-registration). Replicas report their connected machines in registrations/, and the leader decides from these
// reports. The entry of a machine that has disconnected stays for a time, the grace.
//
// Owns: the time since which each entry has had no connected machine; the form of a report. Reads: registrations/,
// through store/kv; the existing entries, through WorkloadEntries. Never: measures the grace by the clock of another
// process; decides who may register (push/machines); writes to Kubernetes (store/status).
package machines

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	networkingv1 "istio.io/api/networking/v1alpha3"
)

// Annotations that istiod sets on WorkloadEntries (istio.io/istio, pilot/pkg/autoregistration/internal/state).
const (
	GroupAnnotation          = "istio.io/autoRegistrationGroup" // the WorkloadGroup from which the entry was made
	ControllerAnnotation     = "istio.io/workloadController"    // the replica that serves, or last served, the machine
	ConnectedAtAnnotation    = "istio.io/connectedAt"
	DisconnectedAtAnnotation = "istio.io/disconnectedAt"
	HealthCheckAnnotation    = "proxy.istio.io/health-checks-enabled" // "true": the agent reports health
)

// Folder is the folder of the replicas' reports. Its name sorts after records/, because mirrors would otherwise watch
// it (kv.Families).
const Folder = "registrations/"

// Bounds of the data that one client can cause.
const (
	MostOfAccount = 1000     // WorkloadEntries of one service account, with a connected machine or within the grace
	MaxReport     = 64 << 10 // bytes of one machine's report
	MaxMessage    = 512      // bytes of an agent's message about health
	// MostOfCredential bounds the WorkloadEntries of one credential of a service account. It does not depend on the
	// number of credentials. So all processes decide alike, whatever the order of connections.
	MostOfCredential = MostOfAccount / 4
)

// Full returns the reason to refuse one more machine of a service account, for a message that begins with the account.
// It returns "" if the machine is admitted. The parameter ofAccount is the present number of the account's machines.
// The parameter ofCredential is the number of those with the same credential.
func Full(ofAccount, ofCredential int) string {
	switch {
	case ofAccount >= MostOfAccount:
		return fmt.Sprintf("has %d machines already", ofAccount)
	case ofCredential >= MostOfCredential:
		return fmt.Sprintf("has %d machines by one credential already, and the remaining ones are for other credentials: give each machine "+
			"a token of its own", ofCredential)
	}
	return ""
}

// Name identifies a WorkloadEntry.
type Name struct{ Namespace, Name string }

// String returns "namespace/name", for messages.
func (n Name) String() string { return n.Namespace + "/" + n.Name }

// Machine is a replica's report of one of its machines.
type Machine struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`    // name of the WorkloadEntry
	Account   string `json:"account"` // service account that the machine has proved
	// Credential is a digest of the credential that proved the account. It is equal for a token and for a certificate
	// that was issued for that token. Replicas of older versions leave it empty. An empty Credential is not compared.
	Credential string `json:"credential,omitempty"`
	// Group is the WorkloadGroup from which the entry is made. If it is empty, a user wrote the entry, and only its
	// health is reported.
	Group       string                      `json:"group,omitempty"`
	Labels      map[string]string           `json:"labels,omitempty"`      // labels of the entry's metadata
	Annotations map[string]string           `json:"annotations,omitempty"` // metadata.annotations of the entry, without the constants above
	Checked     bool                        `json:"checked,omitempty"`     // the agent reports health
	Spec        *networkingv1.WorkloadEntry `json:"spec,omitempty"`        // nil without a Group
	// Taken names the Pod or Service that has got the machine's address since the machine registered. Meanwhile the
	// machine has no entry. Taken is empty while the machine has its address.
	Taken     string    `json:"taken,omitempty"`
	Replica   string    `json:"replica"`   // name of the reporting replica
	Connected time.Time `json:"connected"` // beginning of the newest connection, by the replica's clock
	// Disconnected is the end of the machine's last stream; zero while it is connected. Replicas report disconnected
	// machines during the grace.
	Disconnected time.Time `json:"disconnected,omitzero"`
	Health       *Health   `json:"health,omitempty"` // nil: no report on this connection
}

// Health is the last report of an agent.
type Health struct {
	Healthy bool      `json:"healthy"`
	Message string    `json:"message,omitempty"` // why the machine is not healthy
	At      time.Time `json:"at"`                // time of the report, by the replica's clock
}

// ID returns the name of the WorkloadEntry.
func (m Machine) ID() Name { return Name{m.Namespace, m.Name} }

// Holder is the proven identity behind a WorkloadEntry while its machine is connected.
type Holder struct{ Account, Credential string }

// Holder returns the machine's proven identity.
func (m Machine) Holder() Holder { return Holder{m.Account, m.Credential} }

// Is reports whether two holders are the same. An empty credential, of an older replica, equals every credential.
func (h Holder) Is(o Holder) bool {
	return h.Account == o.Account && (h.Credential == o.Credential || h.Credential == "" || o.Credential == "")
}

// Meet reports whether two network names may mean the same network. An empty name may stand for any network.
func Meet(a, b string) bool { return a == b || a == "" || b == "" }

// Held returns the text that refuses a machine whose WorkloadEntry belongs to another identity, the holder.
func Held(name Name, holder Holder) string {
	return fmt.Sprintf("WorkloadEntry %s belongs to a machine of service account %q that is connected with another credential",
		name, holder.Account)
}

// Encode returns the form of the report in etcd. An error means that the report exceeds MaxReport, or that its Spec
// does not encode.
func (m Machine) Encode() ([]byte, error) {
	raw, err := json.Marshal(m)
	if err == nil && len(raw) > MaxReport {
		return nil, fmt.Errorf("its report has %d bytes, %d at most", len(raw), MaxReport)
	}
	return raw, err
}

// Decode is the inverse of Encode. Errors: the report exceeds MaxReport, is not valid JSON, lacks its namespace or
// name, or has a Group without a Spec. The Machine that comes with an error must not be used.
func Decode(raw []byte) (m Machine, err error) {
	if len(raw) > MaxReport {
		return m, fmt.Errorf("%d bytes, at most %d are read", len(raw), MaxReport)
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, err
	}
	if m.Namespace == "" || m.Name == "" || m.Group != "" && m.Spec == nil {
		return m, fmt.Errorf("machine %s: no namespace or name, or a WorkloadGroup without the spec of an entry", m.ID())
	}
	return m, nil
}

// Path returns the path in etcd (kv.Blob) of a process's report about a machine. Each process has paths of its own, so
// no report overwrites another's.
func (m Machine) Path(process string) string {
	return Folder + process + "/" + m.Namespace + "/" + m.Name
}

// EntryName returns the name that istiod gives to a machine's WorkloadEntry: GROUP-ADDRESS, or GROUP-ADDRESS-NETWORK in
// a named network, cut to the last 253 bytes (pilot/pkg/autoregistration, autoregisteredWorkloadEntryName). Colons of
// an address become hyphens. Hyphens and dots at the beginning are removed.
func EntryName(group, address, network string) string {
	name := group + "-" + strings.ReplaceAll(address, ":", "-")
	if network != "" {
		name += "-" + network
	}
	return strings.TrimLeft(name[max(0, len(name)-253):], "-.")
}
