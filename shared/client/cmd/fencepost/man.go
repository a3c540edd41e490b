package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCommand writes the man pages. Their date is that of SOURCE_DATE_EPOCH, or today's.
func (a *app) manCommand() *cobra.Command {
	var folder string
	var c *cobra.Command
	c = a.command("man", "Write the man pages of all commands to a folder", []option{required(&folder, "dir", "the `folder`")}, func(call) error {
		root := c.Root()
		root.DisableAutoGenTag = true
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Fencepost " + root.Version, Manual: "Fencepost"}, folder); err != nil {
			return err
		}
		_, err := fmt.Fprintf(a.out, "Written to %s; try: man %s/fencepost.1\n", folder, folder)
		return err
	})
	return c
}
