// Package keyring keeps the CA's signing keys in etcd, sealed (encrypted). All replicas use the same keys. The package
// rotates the keys, journals issued certificates, and records revocations.
//
// # Data structures
//
// The type record contains the epochs, the generation of the trust bundle, revoked serial numbers and denied
// identities. An epoch is one signing certificate with its status, from prepared to retired. The record is one value in
// etcd. Each key and each signed revocation list is a further value. The keys are sealed with the key encryption key.
//
// The journal has one entry for each issued certificate. If an identity has very many certificates, an aggregate entry
// replaces single entries (journal_quota.go). An aggregate entry has no serial numbers, only the end of the last of
// these certificates. An allowance permits a replica to renew a number of certificates while etcd is away
// (allowance.go).
//
// # One rotation
//
// When a new epoch is published, its root joins the trust bundle, but its key signs nothing yet. The epoch starts to
// sign once the holder of every unexpired certificate has the new root (journal_index.go), or when an operator forces
// it. The old epoch is retired once all its certificates have expired. The function step decides when an epoch starts
// to sign and when it is retired (step.go). It is a pure function of the record, the journal index and the time. Any
// replica that leads (Config.Leads) may apply the result of step.
//
// # Invariants, held by tests
//
// Every change of the record is a transaction that compares the record's revision in etcd. If several replicas try a
// change, one transaction succeeds. Transactions of the journal compare the revision too. So no certificate is issued
// by a replaced signer or for a revoked identity, except renewals from an allowance. A replica refuses the record in
// etcd if it has seen a newer record before.
//
// Owns: etcd's keys/, certificates/ and allowances/, and the keyring's files in the data directory.
// Reads: ca/seal, ca/issue, store/kv, the user's CA through a CASource.
// Never: writes a key that is not sealed; lets a key be printed; accepts an older record than it has seen.
package keyring
