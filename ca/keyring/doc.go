// Package keyring keeps the keys that sign: epochs in etcd, sealed, the same for every replica; their rotation; the journal of what was
// issued; what is revoked.
//
// # Data structures
//
// record is everything but keys, lists and the journal: the epochs (a signing certificate each, with its status from published to retired),
// the generation of the trust bundle, revoked serial numbers and denied identities. It is one value in etcd; keys and revocation lists are
// values beside it, sealed under the key encryption key. The journal has one entry for each certificate that was issued, or, where an
// identity has very many, that there are some and until when (tally.go). allowance.go is what a replica may renew while etcd is away.
//
// # One rotation
//
// A new epoch is published: its root joins the bundle, and nothing is signed with it. Once the holder of every unexpired certificate has
// reported that it has the new root (census.go), it signs. The old one is retired once no certificate of it is unexpired. Each step is
// decided by step, a pure function of the record, the census and the time (step.go); any replica may carry it out.
//
// # Invariants, held by tests
//
// Every change of the record is a transaction that compares the revision it was made against: replicas may all try, one wins. The journal's
// transactions compare it too, so nothing is issued under a record that is no longer in force: not by a signer that was replaced, nor for
// an identity that was revoked. A replica that remembers a newer record than the one in etcd takes no older one.
//
// Owns: etcd's keys/ and certificates/, keyring.json in the data directory.  Reads: ca/seal, ca/issue, store/kv, the user's CA where a CASource has it.  Never: writes a key that is
// not sealed; lets a key be printed; goes back to an older record than it has seen.
package keyring
