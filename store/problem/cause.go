package problem

import "regexp"

// local matches the local end of a connection in the errors of package net, as in "read udp
// 10.0.0.7:43210->10.0.0.10:53: i/o timeout".
var local = regexp.MustCompile(`\[?[0-9A-Fa-f.:]*(%[^\]\s]+)?\]?:\d+->`)

// Cause returns the text of an error for the message of a problem. err must not be nil. The text lacks the local
// address and port of connections. The port changes with each attempt, and a problem with a changed text would count as
// a different problem.
func Cause(err error) string { return local.ReplaceAllString(err.Error(), "") }
