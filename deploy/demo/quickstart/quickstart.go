// Package quickstart tests README's chapter "Quick start": its blocks run unchanged, in order, as after a fresh clone
// of the repository.
//
// Owns: nothing; the test runs in its own network, process and mount namespaces, where all ports are free and bin/ and
// out/ are empty. Reads: README.md. Never: changes a command before it runs it.
package quickstart
