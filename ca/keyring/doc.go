// Package keyring keeps the CA's signing keys in etcd, sealed and the same for every replica. It rotates them, journals
// issued certificates, and records revocations.
//
// # Data structures
//
// record is the keyring without its keys, the revocation lists that it signs, and the journal. It contains the epochs,
// the generation of the trust bundle, revoked serial numbers and denied identities. An epoch is one signing certificate
// with its status, from prepared to retired. The record is one value in etcd. Each key and each signed revocation list
// is a further value. The keys are sealed under the key encryption key.
//
// The journal has one entry for each issued certificate. If an identity has very many certificates, an aggregate entry
// replaces single entries: it has no serial numbers, only the end of the last of these certificates (journal_quota.go).
// An allowance permits a replica to renew a number of certificates while etcd is away (allowance.go).
//
// # One rotation
//
// When a new epoch is published, its root joins the trust bundle, but its key signs nothing yet. The epoch starts to
// sign once the holder of every unexpired certificate has the new root (journal_index.go), or when an operator forces
// it. The old epoch is retired once all its certificates have expired. The function step decides when an epoch starts
// to sign and when it is retired (step.go). It is a pure function of the record, the journal index and the time. Any
// replica that leads (Config.Leads) may apply its result.
//
// # Invariants, held by tests
//
// Every change of the record is a transaction that compares the record's revision in etcd. If several replicas try a
// change, one transaction succeeds. Transactions of the journal compare the revision too, so nothing is issued under a
// superseded record: neither by a replaced signer nor for a revoked identity. Renewals from an allowance are the
// exception. A replica that remembers a newer record than the one in etcd refuses the one in etcd.
//
// Owns: etcd's keys/, certificates/ and allowances/, and the keyring's files in the data directory.
// Reads: ca/seal, ca/issue, store/kv, the user's CA through a CASource.
// Never: writes a key that is not sealed; lets a key be printed; accepts an older record than it has seen.
package keyring
