"""Local files without a process for each of them.

Where Hadoop has no native library, which is everywhere that pip installed it, it starts a `chmod` for every file it
makes: three for each batch of a flow, some 6 ms of a core each. `LocalFiles.java` does it in the JVM. It is compiled by
Janino, which Spark brings to compile its queries, and takes the place of Hadoop's own class in the driver; why so, and
what else was tried: decision 18.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

SOURCE, NAME = "LocalFiles.java", "millpond.LocalFiles"
ROOT = "file:///"


def use_own_local_files(session: SparkSession) -> None:
    """Let this JVM make local files by our class; where it cannot be had, files are made as before, only slower."""
    jvm: Any = session._jvm
    usual = session.sparkContext._jsc.hadoopConfiguration()
    try:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(files(__package__).joinpath(SOURCE).read_text())
        ours = jvm.org.apache.hadoop.conf.Configuration(usual)
        ours.setClassLoader(compiler.getClassLoader())
        ours.set("fs.file.impl", NAME)
        _replace(jvm.org.apache.hadoop.fs.FileSystem, jvm.java.net.URI(ROOT), usual, ours)
    except Py4JError:
        return


def _replace(file_systems: Any, root: Any, usual: Any, ours: Any) -> None:
    """Hadoop keeps one file system for each scheme: it forgets the one that is closed, and keeps the next one that it
    is asked for. The configuration that executors get is left alone: they do not have the class."""
    file_systems.get(root, usual).close()
    file_systems.get(root, ours)
