// Package keyring keeps the CA's signing keys in etcd, sealed and the same for every replica. It rotates them, journals
// issued certificates, and records revocations.
//
// # Data structures
//
// record is everything but keys, lists and the journal: the epochs (a signing certificate each, with its status from
// prepared to retired), the generation of the trust bundle, revoked serial numbers and denied identities. The record is
// one value in etcd. Keys and revocation lists are values beside it; the keys are sealed under the key encryption key.
//
// The journal has one entry for each issued certificate. If an identity has very many certificates, aggregate entries
// state the end of the last of them (journal_quota.go). allowance.go bounds the certificates that a replica may renew
// while etcd is away.
//
// # One rotation
//
// A new epoch is published: its root joins the bundle, and nothing is signed with it. The epoch starts to sign once the
// holder of every unexpired certificate has the new root (journal_index.go), or when an operator forces it. The old
// epoch is retired once all its certificates have expired. step decides each of these changes (step.go). It is a pure
// function of the record, the journal index and the time. Any replica that leads (Config.Leads) may apply its result.
//
// # Invariants, held by tests
//
// Every change of the record is a transaction that compares the revision which the change was computed from. Several
// replicas may try a change; one wins. Transactions of the journal compare the revision too, so nothing is issued under
// a superseded record: neither by a replaced signer nor for a revoked identity. Renewals from an allowance are the
// exception. A replica that remembers a newer record than the one in etcd refuses the older one.
//
// Owns: etcd's keys/, certificates/ and allowances/, and the keyring's files in the data directory.
// Reads: ca/seal, ca/issue, store/kv, the user's CA through a CASource.
// Never: writes a key that is not sealed; lets a key be printed; goes back to an older record than it has seen.
package keyring
