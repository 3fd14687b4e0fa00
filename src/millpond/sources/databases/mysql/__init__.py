"""mysql:// and mariadb:// as a source: tables that are loaded and polled, and changes that are captured."""
