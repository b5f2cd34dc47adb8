// Package quickstart is the test of README's chapter "Quick start": its blocks are run as they stand, one after the other, as
// somebody would who has just cloned the repository.
//
// Owns: nothing; the test runs in network, process and mount namespaces of its own, where all ports are free and bin/ and out/
// are empty.  Reads: README.md.  Never: changes a command before it runs it.
package quickstart
