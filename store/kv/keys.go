// Package kv reads and writes the store in etcd: fenced batches, lists at one revision, watches.
//
// Owns: every key below /navarch/<mesh>/v1/, laid out by Families. Reads: store/model. Never: decides the contents of
// records; writes records outside a transaction that compares the election key.
//
// # Publishing
//
// The leader writes Batches. A batch that fits one transaction writes its records and a complete head together. A
// larger batch makes the head incomplete with its first transaction and complete with its last. So at every revision
// the head states whether the records beside it are a complete state. Readers start and publish at complete states
// only. An incomplete head names the last complete revision, so that a reader can start there. The next leader finds an
// incomplete head, compares everything, and commits a batch that completes it.
//
// # Revisions of the control plane
//
// Several revisions of the control plane may share an etcd (revision.go). A Family of keys belongs to one revision or
// to the whole mesh. The configuration, as one build normalises it, belongs to its revision; the CA belongs to the
// mesh. Store adds the prefix of the revision or of the mesh to each path, so that callers use paths alone. Only one
// process writes to Kubernetes. Its revision must be promoted, and it must hold the election writer/ (status.Writer
// checks both). deploy/docs/revisions.md describes the work of operators.
//
// # Contents
//
// A complete head states for each kind the number of records and a sum of their digests, over paths and stored bytes
// (Contents). The sums do not depend on how a build encodes a record. The leader counts the records that it read when
// its term began and those that it wrote since (Batch.Stored, Was), without changes by others. Contents show changes
// that were made by accident or with foreign tools. They do not protect against an attacker who may write to etcd: the
// attacker can write a matching head too.
//
// Every transaction of a leader writes the head, so a revision with changed records and no new head comes from another
// writer. store/ingest watches the records, and writes the changed records again or removes them. Sometimes no object
// gives the right value of a record, because the object does not parse or only a newer build knows its kind. In this
// case the leader reads the record's earlier value from etcd's history. If the records differ from the head, Load
// returns the state at the head's revision, if etcd still has that revision and its records agree with the head. A
// watch from there delivers later changes.
//
// A mirror (a reader that keeps all records in memory) computes the same sums while it reads the records, and compares
// them at each complete head. It does not publish a kind that differs, and lists the store again, at once and then with
// longer and longer pauses. If the list differs too, the mirror reports the kind (mirror.Held). A mirror without a good
// state of a known kind, in memory or on disk, is not ready. navarchctl store adopt, as an elected candidate, writes a
// head that agrees with the stored records.
//
// # Restored stores
//
// Neither revisions nor the cluster's id show what a restored etcd has lost. So each head states its place (Place): a
// chain, a term, and the batch within the term. The chain is a random number of the first leader. Each full comparison
// of a leader begins a term. The term is above the stored one, above the one that the process's mirror has read, and at
// least the time in milliseconds since 1970. So a leader exceeds even terms that were lost. It writes a head in the new
// term even if no record differs. A head in the middle of a batch states the place of the last complete state.
//
// A mirror rejects a head that is earlier in its chain than a head that it has read (CheckHead). A mirror's snapshot on
// disk states its place in the first line. Within one chain, another cluster id or lower revisions only make the mirror
// list the store again. Heads of another chain, or of an older build without a place, are compared by cluster id and
// revision. navarchctl store adopt --over writes a head after a given place, in that chain.
package kv

import (
	"fmt"
	"strings"

	"navarch.io/navarch/store/model"
)

// Role is an etcd role: the permissions of one part of navarchd if etcd has authentication.
type Role string

// The roles. A process with several roles of navarchd has an etcd user with several of these roles.
const (
	RoleIngest Role = "navarch-ingest" // the elected writer
	RoleXDS    Role = "navarch-xds"    // replicas that serve proxies
	RoleCA     Role = "navarch-ca"     // replicas that sign
	// RoleOperator is for people who promote revisions (navarchctl store), not for navarchd.
	RoleOperator Role = "navarch-operator"
)

// Family describes a group of keys with common writers, readers and permissions.
type Family struct {
	Path   string // below the prefix of the revision or of the mesh; a folder ends with a slash
	Holds  string // the content
	Writer string // the packages that write; "each its own": each process writes a key of its own
	Reader string // the packages that read
	Write  []Role // may write and read
	Read   []Role // may read
	Mesh   bool   // true: all revisions of the control plane share the keys; false: each has its own
}

// Families lists all keys that Navarch keeps in etcd. Mirrors watch the range from head to records/, and so receive
// every family that sorts in between. A family that is written often must therefore sort outside that range. keys/ is
// in the range and sealed; the other families in it contain no secrets. Families of the mesh and of the default
// revision are below /navarch/<mesh>/v1/, those of another revision below /navarch/<mesh>/v1/revisions/<revision>/
// (revision.go).
var Families = []Family{
	{Path: "acknowledged/", Holds: "the revision that each replica's streams have acknowledged, and the refused objects, leased",
		Writer: "push/acknowledged (each replica its own)",
		Reader: "push/acknowledged (leader)", Write: []Role{RoleXDS}, Read: []Role{RoleIngest}},
	{Path: "allocations/", Holds: "automatic addresses of ServiceEntries, by namespace and name", Writer: "store/allocate (leader)",
		Reader: "store/allocate (leader)",
		Write:  []Role{RoleIngest}},
	{Path: "allowances/", Holds: "permissions to renew certificates without etcd", Writer: "ca/keyring (each its own)", Reader: "ca/keyring",
		Write: []Role{RoleCA}, Mesh: true},
	{Path: "awaited/", Holds: "the leader's question: the revision for the answers in acknowledged/",
		Writer: "push/acknowledged (leader)", Reader: "push/acknowledged (every replica)",
		Write: []Role{RoleIngest}, Read: []Role{RoleXDS}},
	{Path: "certificates/", Holds: "the journal of issued certificates, without expired ones", Writer: "ca/keyring (each its own)",
		Reader: "ca/keyring",
		Write:  []Role{RoleCA}, Mesh: true},
	{Path: "clocks/", Holds: "the time of each process that signs, leased, and a time that has certainly passed",
		Writer: "store/clock (each its own)", Reader: "store/clock",
		Write: []Role{RoleCA}, Mesh: true},
	{Path: "clusters/", Holds: "kubeconfigs of other clusters, sealed", Writer: "store/source/remote (leader)",
		Reader: "store/source/remote (every process that knows tokens)",
		Write:  []Role{RoleIngest}, Read: []Role{RoleXDS, RoleCA}},
	{Path: "dns/", Holds: "resolved addresses of the DNS names of gateways between networks", Writer: "store/hostnames (leader)",
		Reader: "store/hostnames (leader)",
		Write:  []Role{RoleIngest}},
	{Path: "fetched/", Holds: "key sets that were fetched for RequestAuthentications, each below the hash of its source",
		Writer: "store/jwks (leader)", Reader: "store/jwks (leader)",
		Write: []Role{RoleIngest}},
	{Path: "head", Holds: "the head: whether the records are complete, with their counts and digests",
		Writer: "store/ingest (leader); navarchctl store adopt, without a leader", Reader: "store/mirror, store/ingest",
		Write: []Role{RoleIngest}, Read: []Role{RoleXDS}},
	{Path: "keys/", Holds: "epochs of signing keys, sealed", Writer: "ca/keyring (any, by comparison)",
		Reader: "ca/keyring; cmd/navarchd (before it creates a key file)",
		Write:  []Role{RoleCA}, Read: []Role{RoleXDS, RoleIngest}, Mesh: true},
	{Path: "leader/", Holds: "the election, one leased key per candidate", Writer: "store/lead", Reader: "store/lead, store/kv (fences)",
		Write: []Role{RoleIngest, RoleCA}, Read: []Role{RoleXDS}},
	{Path: "level/", Holds: "the highest level of configuration (model.Level) that every replica can read", Writer: "shard/level (leader)",
		Reader: "shard/level (leader), shard/member (compares)",
		Write:  []Role{RoleIngest}, Read: []Role{RoleXDS}},
	{Path: "members/", Holds: "replicas and their load, leased", Writer: "shard/member (each its own)", Reader: "shard/member (leader)",
		Write: []Role{RoleXDS}, Read: []Role{RoleIngest}},
	{Path: "promoted/", Holds: "the name of the revision that writes to Kubernetes", Writer: "cmd/navarchd (leader, once), operators",
		Reader: "cmd/navarchd (leaders of all revisions)",
		Write:  []Role{RoleIngest, RoleOperator}, Mesh: true},
	{Path: "records/", Holds: "the normalised configuration", Writer: "store/ingest (leader)", Reader: "store/mirror, store/ingest",
		Write: []Role{RoleIngest}, Read: []Role{RoleXDS}},
	{Path: "refusals/", Holds: "configuration that proxies refused, or acknowledged while it was withheld, leased",
		Writer: "push/quarantine/share (each replica its own)", Reader: "push/quarantine/share",
		Write: []Role{RoleXDS}},
	{Path: "registrations/", Holds: "machines that are connected to replicas, leased", Writer: "push/machines (each replica its own)",
		Reader: "store/machines (leader)",
		Write:  []Role{RoleXDS}, Read: []Role{RoleIngest}, Mesh: true},
	{Path: "removals/", Holds: "the removals that the leader holds", Writer: "cmd/navarchd/removals (leader)",
		Reader: "cmd/navarchd/removals (every process)",
		Write:  []Role{RoleIngest}, Read: []Role{RoleXDS, RoleCA}},
	{Path: "replica-problems/", Holds: "problems of objects that replicas find while they plan and build, leased",
		Writer: "push/problems (each replica its own)", Reader: "push/problems (leader)",
		Write: []Role{RoleXDS}, Read: []Role{RoleIngest}},
	{Path: "ring/", Holds: "the owner of each shard", Writer: "shard/place (leader)",
		Reader: "shard/place, shard/relay through a replica",
		Write:  []Role{RoleIngest}, Read: []Role{RoleXDS}},
	{Path: "sealing/", Holds: "the MAC key for sealed configuration, itself sealed", Writer: "ca/vault (leader, once)",
		Reader: "ca/vault (leader); cmd/navarchd (before it creates a key file)",
		Write:  []Role{RoleIngest}, Read: []Role{RoleCA}, Mesh: true},
	{Path: "sources/", Holds: "the time up to which each Kubernetes cluster was read", Writer: "store/asof (leader)",
		Reader: "store/asof (every process that knows tokens)",
		Write:  []Role{RoleIngest}, Read: []Role{RoleXDS, RoleCA}},
	{Path: "tenants/", Holds: "labels that join namespaces into tenants", Writer: "cmd/navarchd (leader)", Reader: "cmd/navarchd, for /debug",
		Write: []Role{RoleIngest}, Read: []Role{RoleXDS, RoleCA}},
	{Path: "writer/", Holds: "the election of the one process that writes to Kubernetes, one leased key per candidate", Writer: "store/lead",
		Reader: "store/lead",
		Write:  []Role{RoleIngest}, Mesh: true},
}

// Prefix returns the prefix of all keys of one mesh, with a slash at the end.
func Prefix(mesh string) string { return "/navarch/" + mesh + "/v1/" }

// checkMesh refuses an empty name, and names that would place one mesh's keys among another's.
func checkMesh(mesh string) error {
	if mesh == "" || strings.ContainsAny(mesh, "/\x00") {
		return fmt.Errorf("mesh name %q: want a name without slashes", mesh)
	}
	return nil
}

const (
	headPath    = "head"
	recordsPath = "records/"
	leaderPath  = "leader"
	writerPath  = "writer"
)

// RecordKey returns the etcd key of a record.
func (s *Store) RecordKey(key model.Key) string { return s.prefix + recordsPath + key.Path() }

// LeaderPath returns the folder of the election of this revision's ingester, without the slash at the end.
func (s *Store) LeaderPath() string { return s.prefix + leaderPath }

// WriterPath returns the folder of the election of the process that writes to Kubernetes, without the slash at the end.
func (s *Store) WriterPath() string { return s.mesh + writerPath }

// watched returns the range of keys with the head and the records.
func watched(prefix string) (from, end string) { return prefix + headPath, after(prefix + recordsPath) }

// after returns the first key after all keys below a folder.
func after(folder string) string { return folder[:len(folder)-1] + string(folder[len(folder)-1]+1) }
